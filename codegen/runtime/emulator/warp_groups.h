// Products of warp groups (wgmma): matrices in shared memory, by descriptors, are read at once or when somebody waits.
//
// Accumulators in flight are not in their registers: what stands there meanwhile is a pattern, which nobody may change.
#pragma once
#include "barriers.h"
#include "boxes.h"
#include "matrices.h"

namespace emulator {
constexpr int MOST_COLUMNS = 256;
constexpr uint32_t IN_FLIGHT = 0xffb0b0b0;  // a NaN

// 16 rows of a warp's results.
struct Sums {
  float* d[WARP];
  int columns, uses;
  float value[16][MOST_COLUMNS];
};
struct Wgmma {
  Sums* sums;
  uint64_t a, b;
  bool bf16, from_registers, a_across, b_across, adds;
  uint32_t registers[WARP][4];
  const uint32_t* at[WARP];  // where they were: they stay as they are until the wait
  int group, warp;
  Site site;
};
struct WarpOfGroup {
  Array<Wgmma> under_way;
  Array<Sums*> sums;
  int group;       // that products belong to until the next commit
  long count;      // of all products
  bool fenced;
};
inline WarpOfGroup group_warps[MOST_BLOCKS][MOST_THREADS / WARP];

inline WarpOfGroup& group_warp(const Thread& t) { return group_warps[t.block->slot][t.number / WARP]; }

// Where an element lies: row i of M or N, k of the 16.
struct Operand {
  uint32_t start, leading, stride, swizzle;
  bool across;

  Operand(uint64_t d, bool across, const char* name, Site site) : across(across) {
    start = (uint32_t)(d & 0x3fff) << 4;
    leading = (uint32_t)(d >> 16 & 0x3fff) << 4;
    stride = (uint32_t)(d >> 32 & 0x3fff) << 4;
    constexpr uint32_t SWIZZLES[] = {0, 128, 64, 32};
    swizzle = SWIZZLES[d >> 62];
    if (!swizzle) fail(site, "descriptor of %s without a swizzle: not modelled", name);
    if (d >> 49 & 7) fail(site, "descriptor of %s with a base offset: not modelled", name);
    const uint32_t pattern = 8 * swizzle, inside = start % pattern;
    if (across ? inside != 0 : inside >= swizzle)
      fail(site, "descriptor of %s begins %u bytes into a pattern of %u", name, inside, pattern);
    if (stride % pattern) fail(site, "descriptor of %s has strides of %u bytes, no multiple of %u", name, stride, pattern);
    if (across && leading % pattern) fail(site, "descriptor of %s has runs %u bytes apart, no multiple of %u", name, leading, pattern);
  }
  uint32_t address(int i, int k) const {
    const int run = swizzle / 2;
    const uint32_t at = across ? start + i / run * leading + k / 8 * stride + k % 8 * swizzle + i % run * 2
                               : start + i / 8 * stride + i % 8 * swizzle + k * 2;
    return swizzled(at, swizzle);
  }
};
inline float half_float(uint16_t u, bool is_bf16) {
  return is_bf16 ? element<BF16>(u, 0) : element<F16>(u, 0);
}
// Rows [first, first + count) of an operand were written by copies, or fenced.
inline void must_be_seen(const Thread& t, const Operand& o, int first, int count, Site site) {
  for (int i = first; i < first + count; i += o.across ? 8 : 1)
    for (int k = 0; k < 16; k += o.across ? 1 : 8) {
      const uint32_t at = o.address(i, k);
      shared_of(*t.block, at, 16, "operand of a wgmma", site);
      must_be_fenced(t, at - SHARED_BASE, 2, "wgmma of", site);
    }
}
inline void multiply(Thread& lane, const Wgmma& w) {
  Block& block = *lane.block;
  const int id = id_of(w.site);
  float a[16][16], b[16][MOST_COLUMNS];
  const int columns = w.sums->columns;
  auto read = [&](const Operand& o, int i, int k, const char* name) {
    const uint32_t at = o.address(i, k);
    uint16_t u;
    memcpy(&u, shared_of(block, at, 2, name, w.site), 2);
    if ((o.across ? i : k) % 8 == 0) shadow_load(lane, at - SHARED_BASE, 2, w.site, id);  // once for 16 bytes: they come together
    return half_float(u, w.bf16);
  };
  if (w.from_registers) {
    for (int l = 0; l < WARP; l++)
      for (int r = 0; r < 4; r++)
        for (int i = 0; i < 2; i++)
          a[l / 4 + r % 2 * 8][(r / 2 * 4 + l % 4) * 2 + i] = half_float((uint16_t)(w.registers[l][r] >> 16 * i), w.bf16);
  } else {
    const Operand o(w.a, w.a_across, "a", w.site);
    for (int i = 0; i < 16; i++)
      for (int k = 0; k < 16; k++) a[i][k] = read(o, w.warp % 4 * 16 + i, k, "a of a wgmma");
  }
  const Operand o(w.b, w.b_across, "b", w.site);
  for (int k = 0; k < 16; k++)
    for (int j = 0; j < columns; j++) b[k][j] = read(o, j, k, "b of a wgmma");
  for (int i = 0; i < 16; i++) {
    float* d = w.sums->value[i];
    if (!w.adds) memset(d, 0, columns * sizeof(float));
    for (int k = 0; k < 16; k++)
      for (int j = 0; j < columns; j++) d[j] += a[i][k] * b[k][j];
  }
}
// Register r of lane l, as an element of 16 rows.
inline float& sum_at(Sums& s, int l, int r) { return s.value[l / 4 + r % 4 / 2 * 8][r / 4 * 8 + l % 4 * 2 + r % 2]; }

struct Issued {
  float* d;
  int columns;
  bool bf16;
  const uint32_t* registers;
  uint64_t a, b;
  bool a_across, b_across, adds;
};
inline void issue(Thread* lanes, uint32_t) {
  const Issued& f = *(Issued*)lanes->frame;
  WarpOfGroup& warp = group_warp(*lanes);
  const Site site = lanes->site;
  if (!warp.fenced) fail(site, warp.count ? "wgmma without a wgmma_fence since the last commit" : "wgmma before the first wgmma_fence");
  Sums* sums = nullptr;
  for (int i = 0; i < warp.sums.count; i++)
    if (warp.sums[i]->uses && warp.sums[i]->d[0] == f.d) sums = warp.sums[i];
  if (!sums) {
    for (int i = 0; i < warp.sums.count && !sums; i++)
      if (!warp.sums[i]->uses) sums = warp.sums[i];
    if (!sums) warp.sums.push(sums = (Sums*)malloc(sizeof(Sums)));
    sums->columns = f.columns;
    sums->uses = 0;
    for (int l = 0; l < WARP; l++) {
      sums->d[l] = ((Issued*)lanes[l].frame)->d;
      for (int r = 0; r < f.columns / 2; r++) {
        sum_at(*sums, l, r) = sums->d[l][r];
        memcpy(&sums->d[l][r], &IN_FLIGHT, 4);
      }
    }
  }
  if (sums->columns != f.columns) fail(site, "wgmma of %d columns on accumulators of %d in flight", f.columns, sums->columns);
  sums->uses++;
  Wgmma w{sums, f.a, f.b, f.bf16, f.registers != nullptr, f.a_across, f.b_across, f.adds, {}, {}, warp.group, lanes->number / WARP, site};
  for (int l = 0; l < WARP; l++) {
    const Issued& own = *(Issued*)lanes[l].frame;
    if (own.a != f.a || own.b != f.b || own.adds != f.adds) fail(site, "wgmma with other descriptors in lane %d than in lane 0", l);
    w.at[l] = own.registers;
    if (own.registers) memcpy(w.registers[l], own.registers, sizeof w.registers[l]);
  }
  warp.count++;
  if (!w.from_registers) must_be_seen(*lanes, Operand(w.a, w.a_across, "a", site), w.warp % 4 * 16, 16, site);
  must_be_seen(*lanes, Operand(w.b, w.b_across, "b", site), 0, f.columns, site);
  if (!plan.late_products()) multiply(*lanes, w);
  warp.under_way.push(w);
}
inline void commit(Thread* lanes, uint32_t) {
  group_warp(*lanes).group++;
  group_warp(*lanes).fenced = false;  // registers may be others' from here on
}
inline void fence(Thread* lanes, uint32_t) { group_warp(*lanes).fenced = true; }

// A product is done: its sums are in their registers again, unless others are to be added to them.
inline void finish(Thread* lanes, const Wgmma& w) {
  if (plan.late_products()) multiply(*lanes, w);
  for (int l = 0; l < WARP; l++)
    if (w.at[l] && memcmp(w.registers[l], w.at[l], sizeof w.registers[l])) fail(w.site, "registers of a were written in lane %d before wgmma_wait", l);
  Sums& s = *w.sums;
  if (--s.uses) return;
  for (int l = 0; l < WARP; l++)
    for (int r = 0; r < s.columns / 2; r++) {
      if (memcmp(&s.d[l][r], &IN_FLIGHT, 4)) fail(w.site, "accumulator %d of lane %d was written before wgmma_wait", r, l);
      s.d[l][r] = sum_at(s, l, r);
    }
}
struct Waited {
  int groups;
};
inline void finish_groups(Thread* lanes, uint32_t mask) {
  WarpOfGroup& warp = group_warp(*lanes);
  const int groups = ((Waited*)lanes->frame)->groups;
  int kept = 0;
  for (int i = 0; i < warp.under_way.count; i++) {
    const Wgmma w = warp.under_way[i];
    if (w.group < warp.group - groups) finish(lanes, w);
    else warp.under_way[kept++] = w;
  }
  warp.under_way.count = kept;
  meet_lanes(lanes, mask);  // all lanes know that what was multiplied has been read
}
inline void begin_warp_groups(Block& b) {
  for (int w = 0; w < (b.threads + WARP - 1) / WARP; w++) {
    WarpOfGroup& warp = group_warps[b.slot][w];
    warp.under_way.count = 0;
    for (int i = 0; i < warp.sums.count; i++) warp.sums[i]->uses = 0;
    warp.group = 0;
    warp.count = 0;
    warp.fenced = false;
  }
}
inline void check_warp_groups(Block& b) {
  for (int w = 0; w < b.threads / WARP; w++)
    if (group_warps[b.slot][w].count != group_warps[b.slot][w / 4 * 4].count)
      fail({"end", 0}, "warps %d and %d of one warp group issued %ld and %ld wgmma", w / 4 * 4, w, group_warps[b.slot][w / 4 * 4].count,
           group_warps[b.slot][w].count);
}
inline void of_whole_warp(Collective what, void* frame, const char* name, Site site) {
  if (lanes_of(self()) != ~0u) fail(site, "%s by a warp of %d lanes", name, __builtin_popcount(lanes_of(self())));
  self().site = site;
  meet(what, ~0u, frame, name, site);
}
}  // namespace emulator

extern "C" {
void emulator_wgmma_fence(emulator::Site site) { emulator::of_whole_warp(emulator::fence, nullptr, "wgmma_fence", site); }
void emulator_wgmma_commit(emulator::Site site) { emulator::of_whole_warp(emulator::commit, nullptr, "wgmma_commit", site); }
void emulator_wgmma_wait(int groups, emulator::Site site) {
  emulator::Waited frame{groups};
  emulator::of_whole_warp(emulator::finish_groups, &frame, "wgmma_wait", site);
}
void emulator_wgmma(
    float* d, int columns, bool bf16, const uint32_t* a_registers, uint64_t a, uint64_t b, bool a_across, bool b_across, bool adds,
    emulator::Site site) {
  using namespace emulator;
  Issued frame{d, columns, bf16, a_registers, a, b, a_across, b_across, adds};
  of_whole_warp(issue, &frame, "wgmma", site);
}
}
