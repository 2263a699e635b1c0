// Clusters: blocks that run together and wait for each other; registers that warp groups hand to each other.
#pragma once
#include "barriers.h"

namespace emulator {
constexpr int GROUP = 128, UNIT_REGISTERS = 65536;  // threads of a warp group; registers of a multiprocessor

struct Cluster {
  int arrived = 0;
  Site site;
  int registers[MOST_BLOCKS][MOST_THREADS / WARP];  // that a thread of the warp has now; 0: what the launch gave it
};
inline Cluster cluster;

// Everybody who is not through has come: they go on.
inline void settle_cluster() {
  if (!cluster.arrived || cluster.arrived != machine.live) return;
  cluster.arrived = 0;
  for (int r = 0; r < machine.blocks.count; r++) begin_epoch(machine.blocks[r]);
  for (int i = 0; i < machine.threads.count; i++) {
    Thread& t = machine.threads[i];
    if (t.state == WAITING && t.wait == AT_CLUSTER) wake(t);
  }
}
inline void check_registers(Block& b) {
  const int groups = b.threads / GROUP;
  int all = 0, set = 0;
  for (int g = 0; g < groups; g++) {
    const int* of = &cluster.registers[b.rank][g * GROUP / WARP];
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
  cluster.registers[lanes->block->rank][lanes->number / WARP] = ((Given*)lanes->frame)->count;
}
}  // namespace emulator

extern "C" {
void emulator_cluster_barrier(emulator::Site site) {
  using namespace emulator;
  if (cluster.arrived && !same(cluster.site, site))
    fail(site, "divergent cluster_barrier: others wait at the one of %s:%d", cluster.site.file, cluster.site.line);
  cluster.site = site;
  if (++cluster.arrived == machine.live) {
    settle_cluster();
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
