// The emulator's threads: runs all blocks of a launch, a fiber for every thread that waits. See codegen/include/emulator.h.
#include "emulator/barriers.h"
#include "emulator/copies.h"
#include "emulator/matrices.h"
#include "emulator/memory.h"

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {
// The current thread's kernel has returned.
void leave() {
  Machine& m = machine;
  Thread& t = self();
  Block& b = *t.block;
  t.state = DONE;
  clear_ready(t);
  b.live--;
  m.live--;
  if (t.copies.count) fail(t.copies[0].site, "copy_async that is under way when its thread is through");
  const Barrier& barrier = b.barriers[0];
  if (barrier.arrived && barrier.expected == b.threads)
    fail(barrier.site, "block_barrier that thread %d never reaches: it is through", t.number);
}

// What every fiber does: a thread's kernel, then that of the next thread which has not begun, and so on. So threads that never wait
// cost a call each.
void fiber() {
  Machine& m = machine;
  arrived();
  for (;;) {
    m.kernel(m.launch->args);
    leave();
    Thread& done = self();
    if (!m.live) break;
    const int next = choose(done.global);
    if (next < 0 || m.threads[next].state != NEW) {
      m.leaving = done.stack;
      switch_from(&done.place);
    }
    Thread& t = m.threads[next];
    t.state = READY;
    t.stack = done.stack;
    m.current = &t;
    threadIdx = t.index;
    blockIdx = t.block->index;
  }
  m.leaving = self().stack;
  Place nowhere;
  go(&nowhere, &m.main);
}

// Runs the blocks of one cluster, of which `first` is the number of the first in the grid of clusters.
bool run_cluster(dim3 cluster) {
  Machine& m = machine;
  Launch& l = *m.launch;
  const int size = l.cluster[0] * l.cluster[1] * l.cluster[2], threads = l.block[0] * l.block[1] * l.block[2];
  const size_t shared_bytes = (l.shared_bytes + 4095) / 4096 * 4096 + 4096;
  m.blocks.resize(size);
  if (m.threads.count != size * threads) {
    m.threads.reserve(size * threads);
    for (int i = m.threads.count; i < size * threads; i++) m.threads[i].copies = {};
    m.threads.count = size * threads;
  }
  memset(m.ready, 0, sizeof m.ready);
  m.live = size * threads;
  for (int r = 0; r < size; r++) {
    Block& b = m.blocks[r];
    b = {};
    b.rank = r;
    const uint32_t x = r % l.cluster[0], y = r / l.cluster[0] % l.cluster[1], z = r / (l.cluster[0] * l.cluster[1]);
    b.index = {cluster.x * l.cluster[0] + x, cluster.y * l.cluster[1] + y, cluster.z * l.cluster[2] + z};
    b.live = b.threads = threads;
    b.first = &m.threads[r * threads];
    b.shared = (unsigned char*)aligned_alloc(4096, shared_bytes);
    memset(b.shared, 0xff, shared_bytes);
    for (int i = 0; i < threads; i++) {
      Thread& t = b.first[i];
      const Array<Copy> copies = t.copies;
      t = {};
      t.copies = copies;
      t.copies.count = 0;
      t.block = &b;
      t.number = i;
      t.lane = i % WARP;
      t.global = r * threads + i;
      t.index = {i % l.block[0], i / l.block[0] % l.block[1], i / (l.block[0] * l.block[1])};
      t.state = NEW;
      set_ready(t);
    }
  }
  m.current = &m.threads[0];
  switch_from(&m.main);
  if (m.failed && m.current->state == DONE) m.leaving = m.current->stack;
  arrived();
  if (m.failed)  // whoever still waits will never go on
    for (int i = 0; i < m.threads.count; i++)
      if (m.threads[i].state == READY || m.threads[i].state == WAITING) m.stacks.give(m.threads[i].stack);
  for (int r = 0; r < size; r++) free(m.blocks[r].shared);
  return !m.failed;
}
}  // namespace emulator

extern "C" int emulator_run(emulator::Launch* launch, int version, void (*kernel)(void**)) {
  using namespace emulator;
  Machine& m = machine;
  launch->report[0] = 0;
  if (version != VERSION) {
    snprintf(launch->report, launch->report_bytes, "compiled for version %d of the emulator, this is %d", version, VERSION);
    return 1;
  }
  m.launch = launch;
  m.kernel = kernel;
  m.failed = false;
  m.random = launch->seed * 0x9e3779b97f4a7c15ull + 12345;
  plan = plan_of(launch->seed);
  gridDim = {launch->grid[0], launch->grid[1], launch->grid[2]};
  blockDim = {launch->block[0], launch->block[1], launch->block[2]};
  const dim3 clusters{launch->grid[0] / launch->cluster[0], launch->grid[1] / launch->cluster[1], launch->grid[2] / launch->cluster[2]};
  const uint64_t count = (uint64_t)clusters.x * clusters.y * clusters.z;
  // A step without a common divisor visits all of them in an order of its own.
  uint64_t step = 1, at = 0;
  if (plan.shuffled && count > 2) {
    auto divides = [](uint64_t a, uint64_t b) { while (b) { const uint64_t r = a % b; a = b; b = r; } return a; };
    for (step = count / 3 + 1 + draw() % count; divides(step, count) != 1;) step++;
    at = draw() % count;
  } else if (plan.order == BACKWARD) {
    step = count - 1;
    at = count - 1;
  }
  bool right = true;
  for (uint64_t i = 0; i < count && right; i++, at = (at + step) % count)
    right = run_cluster({(uint32_t)(at % clusters.x), (uint32_t)(at / clusters.x % clusters.y), (uint32_t)(at / ((uint64_t)clusters.x * clusters.y))});
  m.current = nullptr;
  return right ? 0 : 1;
}
