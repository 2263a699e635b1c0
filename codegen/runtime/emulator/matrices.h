// Matrix instructions of a warp: computed once, for all lanes.
#pragma once
#include "barriers.h"
#include "memory.h"

namespace emulator {
struct Loaded {
  uint32_t* r;
  uint32_t address;
  int count;
  bool transposed;
};
inline void load_matrices(Thread* lanes, uint32_t) {
  const Loaded& f = *(Loaded*)lanes[0].frame;
  Thread* const last = machine.current;
  const Site site = last->site;
  const int id = id_of(site);
  for (int q = 0; q < f.count; q++) {
    const unsigned char* rows[8];
    uint64_t addresses[WARP];
    for (int i = 0; i < 8; i++) {
      Thread& owner = lanes[8 * q + i];
      machine.current = &owner;
      addresses[i] = ((Loaded*)owner.frame)->address;
      rows[i] = shared_at((uint32_t)addresses[i], 16, "load_matrix", site);
    }
    for (int l = 0; l < WARP; l++) {
      uint32_t& r = ((Loaded*)lanes[l].frame)->r[q];
      const int row = f.transposed ? l % 4 * 2 : l / 4, column = f.transposed ? l / 4 * 2 : l % 4 * 4;
      const uint32_t at = (uint32_t)addresses[row] - SHARED_BASE + column;
      if (!f.transposed) {
        shadow_load(lanes[l], at, 4, site, id);
        memcpy(&r, rows[row] + column, 4);
        continue;
      }
      shadow_load(lanes[l], at, 2, site, id);
      shadow_load(lanes[l], (uint32_t)addresses[row + 1] - SHARED_BASE + column, 2, site, id);
      uint16_t x, y;
      memcpy(&x, rows[row] + column, 2);
      memcpy(&y, rows[row + 1] + column, 2);
      r = x | (uint32_t)y << 16;
    }
    if (lanes[0].block->cluster->sampled && lanes[0].block->rank == 0) count_conflicts(sources.items[id].shared, addresses, 0xff, 16);
  }
  machine.current = last;
}

struct Multiplied {
  void* d;
  const uint32_t* a;
  uint32_t b0, b1;
};
inline float float_of(uint32_t u) { return core::as<float>(u); }
// Elements of one 32-bit register along K.
template <int KIND> constexpr int PER = KIND == S8 ? 4 : KIND == TF32 ? 1 : 2;
template <int KIND> inline auto element(uint32_t word, int i) {
  if constexpr (KIND == F16) return core::read_f16_portable((uint16_t)(word >> 16 * i));
  else if constexpr (KIND == BF16) return float_of(i ? word & 0xffff0000u : word << 16);
  else if constexpr (KIND == TF32) return float_of(word & ~0x1fffu);
  else return (int32_t)(int8_t)(word >> 8 * i);
}
template <int KIND> inline void multiply(Thread* lanes, uint32_t) {
  using T = decltype(element<KIND>(0, 0));
  constexpr int P = PER<KIND>, K = 8 * P;
  T a[16][K], b[K][8], d[16][8];
  for (int l = 0; l < WARP; l++) {
    const Multiplied& f = *(Multiplied*)lanes[l].frame;
    const int g = l / 4, t = l % 4;
    for (int i = 0; i < P; i++) {
      for (int r = 0; r < 4; r++) a[g + r % 2 * 8][(r / 2 * 4 + t) * P + i] = element<KIND>(f.a[r], i);
      b[t * P + i][g] = element<KIND>(f.b0, i);
      b[(4 + t) * P + i][g] = element<KIND>(f.b1, i);
    }
    for (int r = 0; r < 4; r++) d[g + r / 2 * 8][t * 2 + r % 2] = ((T*)f.d)[r];
  }
  for (int i = 0; i < 16; i++)
    for (int k = 0; k < K; k++)
      for (int j = 0; j < 8; j++) {
        if constexpr (KIND == S8) d[i][j] = (int32_t)((uint32_t)d[i][j] + (uint32_t)(a[i][k] * b[k][j]));
        else d[i][j] += a[i][k] * b[k][j];
      }
  for (int l = 0; l < WARP; l++)
    for (int r = 0; r < 4; r++) ((T*)((Multiplied*)lanes[l].frame)->d)[r] = d[l / 4 + r / 2 * 8][l % 4 * 2 + r % 2];
}
}  // namespace emulator

extern "C" {
void emulator_load_matrix(uint32_t* r, int count, bool transposed, uint32_t row_address, emulator::Site site) {
  using namespace emulator;
  Thread& t = self();
  Loaded frame{r, row_address, count, transposed};
  t.site = site;
  if (lanes_of(t) != ~0u) fail(site, "load_matrix by a warp of %d lanes", __builtin_popcount(lanes_of(t)));
  meet(load_matrices, ~0u, &frame, "load_matrix", site);
}
void emulator_mma(int kind, void* d, const uint32_t* a, uint32_t b0, uint32_t b1, emulator::Site site) {
  using namespace emulator;
  if (kind != F16 && machine.arch < 800) fail(site, "mma of %s takes sm_80, this is sm_%d", kind == BF16 ? "bf16" : kind == TF32 ? "tf32" : "int8", machine.arch / 10);
  constexpr Collective KINDS[] = {multiply<F16>, multiply<BF16>, multiply<TF32>, multiply<S8>};
  Multiplied frame{d, a, b0, b1};
  if (lanes_of(self()) != ~0u) fail(site, "mma by a warp of %d lanes", __builtin_popcount(lanes_of(self())));
  meet(KINDS[kind], ~0u, &frame, "mma", site);
}
}
