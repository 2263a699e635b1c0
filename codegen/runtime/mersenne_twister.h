// Random bits as PyTorch draws them on a CPU: MT19937 (Matsumoto, Nishimura, 1998), two words for each number of 53 bits.
// PyTorch computes word by word; here a block of 624 is computed at once, in vectors, and gives the same bits.
#pragma once

#include <stdint.h>

namespace {

const int TWISTER_WORDS = 624, TWISTER_SHIFT = 397;

// The state of `torch.Generator` on a CPU, as `get_state` begins with it. left: 1 + words that are there before the next
// block, of which `next` is the first.
struct TwisterState {
  uint64_t seed;
  int32_t left, seeded;
  uint64_t next;
  uint64_t words[TWISTER_WORDS];
};

#define TWISTER_INLINE static inline __attribute__((always_inline))

TWISTER_INLINE uint32_t twisted(uint32_t upper, uint32_t lower) {
  const uint32_t mixed = (upper & 0x80000000u) | (lower & 0x7fffffffu);
  return (mixed >> 1) ^ (-(lower & 1u) & 0x9908b0dfu);
}
TWISTER_INLINE void next_block(uint32_t* words) {
  const int n = TWISTER_WORDS, m = TWISTER_SHIFT;
  for (int k = 0; k < n - m; ++k) words[k] = words[k + m] ^ twisted(words[k], words[k + 1]);
  for (int k = n - m; k < n - 1; ++k) words[k] = words[k + m - n] ^ twisted(words[k], words[k + 1]);
  words[n - 1] = words[m - 1] ^ twisted(words[n - 1], words[0]);
}
TWISTER_INLINE uint32_t tempered(uint32_t y) {
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}
TWISTER_INLINE uint8_t is_below(uint32_t high, uint32_t low, uint64_t limit) {
  return ((uint64_t)(high & 0x1fffffu) << 32 | low) < limit;
}

// out[i] = number i of `count` < limit, of whole numbers below 2^53.
TWISTER_INLINE void draw_below(TwisterState* state, uint8_t* out, int64_t count, uint64_t limit) {
  uint32_t words[TWISTER_WORDS], drawn[TWISTER_WORDS + 1];
  for (int i = 0; i < TWISTER_WORDS; ++i) words[i] = (uint32_t)state->words[i];
  int left = state->left, next = (int)state->next;
  int over = 0;  // words of the block before that made no number: one at most, drawn[0]
  while (count) {
    if (left == 1) {
      next_block(words);
      left = TWISTER_WORDS + 1, next = 0;
    }
    int there = left - 1;
    const int64_t wanted = 2 * count - over;
    if (there > wanted) there = (int)wanted;
    for (int i = 0; i < there; ++i) drawn[over + i] = tempered(words[next + i]);
    left -= there, next += there;
    const int numbers = (over + there) / 2;
    for (int i = 0; i < numbers; ++i) out[i] = is_below(drawn[2 * i], drawn[2 * i + 1], limit);
    out += numbers, count -= numbers;
    over = (over + there) % 2;
    if (over) drawn[0] = drawn[2 * numbers];
  }
  for (int i = 0; i < TWISTER_WORDS; ++i) state->words[i] = words[i];
  state->left = left, state->next = (uint64_t)next;
}

void draw_below_anywhere(TwisterState* state, uint8_t* out, int64_t count, uint64_t limit) { draw_below(state, out, count, limit); }
#if defined(__x86_64__)
__attribute__((target("avx2"))) void draw_below_avx2(TwisterState* state, uint8_t* out, int64_t count, uint64_t limit) {
  draw_below(state, out, count, limit);
}
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) void draw_below_avx512(
    TwisterState* state, uint8_t* out, int64_t count, uint64_t limit) {
  draw_below(state, out, count, limit);
}
#endif
#undef TWISTER_INLINE

}  // namespace
