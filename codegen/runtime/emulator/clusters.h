// Clusters: blocks that run together and wait for each other; registers that warp groups hand to each other.
#pragma once
#include "barriers.h"

namespace emulator {
constexpr int GROUP = 128, UNIT_REGISTERS = 65536;  // threads of a warp group; registers of a multiprocessor

// Everybody of the cluster who is not through has come: they go on, and if the barrier orders memory, each knows what all did.
inline void settle_cluster(Cluster& c) {
  if (!c.arrived || c.arrived != c.live) return;
  c.arrived = 0;
  if (c.orders) {
    Knowledge* all = nullptr;
    for (int i = c.first; i < c.first + c.size; i++) {
      begin_epoch(machine.blocks[i]);
      if (c.size > 1) all = joined(all, knowledge_at_barrier(machine.blocks[i]));
    }
    for (int i = c.first; i < c.first + c.size; i++) machine.blocks[i].known = all;
  }
  for (int i = c.first; i < c.first + c.size; i++)
    for (int k = 0; k < machine.blocks[i].threads; k++) {
      Thread& t = machine.blocks[i].first[k];
      if (t.state == WAITING && t.wait == AT_CLUSTER) wake(t);
    }
}
inline void check_registers(Block& b) {
  const int groups = b.threads / GROUP;
  int all = 0, set = 0;
  for (int g = 0; g < groups; g++) {
    const int* of = &b.registers[g * GROUP / WARP];
    for (int w = 1; w < GROUP / WARP; w++)
      if (of[w] != of[0]) fail({"end", 0}, "warps of group %d have %d and %d registers", g, of[0], of[w]);
    all += of[0] * GROUP;
    set += of[0] > 0;
  }
  if (set == groups && all > UNIT_REGISTERS) fail({"end", 0}, "warp groups take %d registers of %d", all, UNIT_REGISTERS);
}
struct Given {
  int count;
};
inline void give_registers(Thread* lanes, uint32_t) {
  lanes->block->registers[lanes->number / WARP] = ((Given*)lanes->frame)->count;
}
}  // namespace emulator

extern "C" {
void emulator_cluster_barrier(bool orders, emulator::Site site) {
  using namespace emulator;
  Cluster& c = *block().cluster;
  if (c.arrived && !same(c.site, site))
    fail(site, "divergent cluster_barrier: others wait at the one of %s:%d", c.site.file, c.site.line);
  c.site = site;
  c.orders = orders;
  if (++c.arrived == c.live) {
    settle_cluster(c);
    may_yield();
    return;
  }
  wait(AT_CLUSTER, "cluster_barrier", site);
}
uint32_t emulator_cluster_rank() { return emulator::block().rank; }
void emulator_registers(int count, bool, emulator::Site site) {
  using namespace emulator;
  if (count % 8 || count < 24 || count > 256) fail(site, "%d registers: expected a multiple of 8 from 24 to 256", count);
  Given frame{count};
  meet(give_registers, ~0u, &frame, "registers_up or registers_down", site);
}
}
