// What blocks of sm_90a have beyond others, from their beginning to their end.
//
// Checked: phases of barriers (too many arrivals, bytes that never come or were not announced, barriers not begun), copies
// into blocks that are through or to places that somebody may still read, products whose operands are on their way or that
// nobody waits for, accumulators and registers of a touched meanwhile, descriptors, registers of warp groups, divergent cluster
// barriers; fences: of barriers that were begun, of what threads wrote before hardware reads it, of each group of products.
//
// Not modelled: what blocks of a cluster know of each other's shared memory (copies to another block are checked by their order
// alone); fences between reads of threads and copies over what they read; that wgmma drops low bits of sums; descriptors without a swizzle or with a base offset; boxes with rows narrower than their
// swizzle; how long anything takes.
#pragma once
#include "boxes.h"
#include "clusters.h"
#include "warp_groups.h"

namespace emulator {
// A cluster begins.
inline void begin_sm90(const Cluster& c) {
  for (int i = c.first; i < c.first + c.size; i++) {
    forget_phases(machine.blocks[i]);
    box_clocks[i] = 0;
    begin_warp_groups(machine.blocks[i]);
  }
}
// A thread is through; with the last one of a block, nothing of the block may be left undone.
inline void leave_sm90(Thread& t) {
  WarpOfGroup& warp = group_warp(t);
  if (warp.under_way.count) fail(warp.under_way[0].site, "wgmma that is under way when its thread is through");
  settle_cluster(*t.block->cluster);
  Block& b = *t.block;
  if (b.live) return;
  check_boxes(b);
  check_phases(b);
  check_warp_groups(b);
  check_registers(b);
}
}  // namespace emulator
