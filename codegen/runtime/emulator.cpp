// The emulator's threads: runs all blocks of a launch, a fiber for every thread that waits. See codegen/include/emulator.h.
#include <signal.h>
#include "emulator/barriers.h"
#include "emulator/copies.h"
#include "emulator/matrices.h"
#include "emulator/memory.h"
#include "emulator/sm90.h"

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {
constexpr uint64_t SAMPLED_BLOCKS = 2;  // clusters where bank conflicts are counted
constexpr uint32_t BEHIND = 256;  // bytes behind shared memory that are looked at when a block is through
constexpr unsigned char POISON = 0xff;  // a NaN in every float type

// Shared memory of all blocks of one slot, between pages that nobody may touch, and what is known of it.
struct SharedMemory {
  unsigned char* whole = nullptr;
  size_t capacity = 0;
  Byte* shadow = nullptr;
  unsigned char* bytes(uint32_t size) {
    const size_t page = sysconf(_SC_PAGESIZE), needed = (size + BEHIND + page - 1) / page * page;
    if (needed > capacity) {
      if (whole) munmap(whole, capacity + 2 * page);
      free(shadow);
      capacity = needed;
      whole = (unsigned char*)mmap(nullptr, capacity + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (whole == MAP_FAILED || mprotect(whole + page, capacity, PROT_READ | PROT_WRITE)) abort();
      shadow = (Byte*)calloc(capacity, sizeof(Byte));
    }
    return whole + page;
  }
};
SharedMemory shared_memories[MOST_BLOCKS];

// Clusters that have not begun, in the order in which they do.
struct Grid {
  dim3 clusters;
  uint64_t count, left, begun, at, step;
};
Grid grid;

void begin_block(Cluster& c, int rank, dim3 at) {
  Machine& m = machine;
  const Launch& l = *m.launch;
  const int slot = c.first + rank, threads = l.block[0] * l.block[1] * l.block[2];
  Block& b = m.blocks[slot];
  Clocks* const clocks = b.clocks;
  b = {};
  b.clocks = clocks;
  b.cluster = &c;
  b.slot = slot;
  b.rank = rank;
  const uint32_t x = rank % l.cluster[0], y = rank / l.cluster[0] % l.cluster[1], z = rank / (l.cluster[0] * l.cluster[1]);
  b.index = {at.x * l.cluster[0] + x, at.y * l.cluster[1] + y, at.z * l.cluster[2] + z};
  b.number = (b.index.z * l.grid[1] + b.index.y) * l.grid[0] + b.index.x;
  b.live = b.threads = threads;
  b.first = &m.threads[slot * threads];
  SharedMemory& memory = shared_memories[slot];
  b.shared = memory.bytes(l.shared_bytes);
  b.shadow = memory.shadow;
  memset(b.shared, POISON, l.shared_bytes + BEHIND);
  begin_clocks(b);
  for (int i = 0; i < threads; i++) {
    Thread& t = b.first[i];
    const Array<Copy> copies = t.copies;
    t = {};
    t.copies = copies;
    t.copies.count = 0;
    t.block = &b;
    t.number = i;
    t.lane = i % WARP;
    t.global = slot * threads + i;
    t.index = {i % l.block[0], i / l.block[0] % l.block[1], i / (l.block[0] * l.block[1])};
    t.state = NEW;
    set_ready(t);
  }
}
// The next cluster begins, if there is one and room for it: as many blocks run side by side as there are slots.
bool admit() {
  Machine& m = machine;
  const Launch& l = *m.launch;
  const int size = l.cluster[0] * l.cluster[1] * l.cluster[2], threads = l.block[0] * l.block[1] * l.block[2];
  int first = 0;
  while (first + size <= MOST_BLOCKS && m.clusters[first].live) first += size;
  if (!grid.left || first + size > MOST_BLOCKS) return false;
  const int used = (first + size) * threads;
  if (used > m.threads.count) m.threads.resize(used);
  Cluster& c = m.clusters[first];
  bool sampling = grid.begun >= SAMPLED_BLOCKS;  // visits of two clusters would mix
  for (const Cluster& other : m.clusters) sampling |= other.live && other.sampled;
  c = {first, size, size * threads, 0, false, {"", 0}, !sampling};
  m.live += c.live;
  const uint32_t at = (uint32_t)grid.at;
  for (int r = 0; r < size; r++) begin_block(c, r, {at % grid.clusters.x, at / grid.clusters.x % grid.clusters.y, at / (grid.clusters.x * grid.clusters.y)});
  begin_sm90(c);
  grid.at = (grid.at + grid.step) % grid.count;
  grid.begun++;
  grid.left--;
  return true;
}
// What can happen although no thread can run. False if there is nothing.
bool go_on() { return bring_one() || admit(); }
// All its threads are through.
void end_cluster(const Cluster& c) {
  if (c.sampled) count_visits();
  const uint32_t bytes = machine.launch->shared_bytes;
  for (int i = c.first; i < c.first + c.size; i++)
    for (uint32_t k = 0; k < BEHIND; k++)
      if (machine.blocks[i].shared[bytes + k] != POISON)
        fail({machine.entry, 0}, "byte %u of the %u of shared memory was written, not through store", bytes + k, bytes);
}

// The current thread's kernel has returned.
void leave() {
  Machine& m = machine;
  Thread& t = self();
  Block& b = *t.block;
  t.state = DONE;
  clear_ready(t);
  b.live--;
  b.cluster->live--;
  b.warps[t.number / WARP].done |= 1u << t.lane;
  m.live--;
  if (t.copies.count) fail(t.copies[0].site, "copy_async that is under way when its thread is through");
  const Barrier& barrier = b.barriers[0];
  if (barrier.arrived && barrier.expected == b.threads)
    fail(barrier.site, "block_barrier that thread %d never reaches: it is through", t.number);
  leave_sm90(t);
  if (!b.cluster->live) end_cluster(*b.cluster);
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

// Begins clusters of the grid and runs them; others begin when all that run wait.
bool run_grid() {
  Machine& m = machine;
  while (grid.left) {
    for (int i = 0; i < plan.together() && admit(); i++);
    m.current = &m.threads[0];
    switch_from(&m.main);
    if (m.failed && m.current->state == DONE) m.leaving = m.current->stack;
    arrived();
    if (!m.failed) continue;
    for (int i = 0; i < m.threads.count; i++)  // whoever still waits will never go on
      if (m.threads[i].state == READY || m.threads[i].state == WAITING) m.stacks.give(m.threads[i].stack);
    return false;
  }
  return true;
}
// A kernel touched what nobody may touch, by a pointer that was not checked.
void crashed(int signal, siginfo_t* info, void*) {
  if (!machine.current || machine.failed) {  // not a kernel's doing
    ::signal(signal, SIG_DFL);
    return;
  }
  const Thread& t = self();
  const uint64_t address = (uint64_t)info->si_addr, stack = (uint64_t)t.stack;
  Text text;
  text.add("%s: ", machine.entry);
  if (address < stack && address + (64 << 10) >= stack) text.add("more than %d bytes of local memory in a thread", (int)STACK_BYTES);
  else {
    text.add("access outside of every tensor, not through load or store");
    for (int i = 0; i < machine.launch->buffer_count; i++) {
      const Buffer& b = machine.launch->buffers[i];
      if (address + (1 << 20) >= b.start && address < b.start + b.bytes + (1 << 20)) text.add(", at byte %lld of %s, which has %llu", (long long)(address - b.start), b.name, (unsigned long long)b.bytes);
    }
  }
  text.add("; after %s:%d; ", machine.last.file, machine.last.line);
  text.thread(t);
  stop();
}
// For the time of a launch.
struct Signals {
  struct sigaction before[2];
  stack_t stack_before;
  Signals() {
    static unsigned char own[64 << 10];  // of the handler: that of a fiber may be what is exhausted
    const stack_t stack{own, 0, sizeof own};
    sigaltstack(&stack, &stack_before);
    struct sigaction action = {};
    action.sa_sigaction = crashed;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &before[0]);
    sigaction(SIGBUS, &action, &before[1]);
  }
  ~Signals() {
    sigaction(SIGSEGV, &before[0], nullptr);
    sigaction(SIGBUS, &before[1], nullptr);
    sigaltstack(&stack_before, nullptr);
  }
};
// Bytes of shared memory that a block can have; CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
uint32_t most_shared(int arch) {
  if (arch < 800) return 64 << 10;
  if (arch == 800 || arch == 870) return 163 << 10;
  if (arch < 900 || arch >= 1200) return 99 << 10;
  return 227 << 10;
}
}  // namespace emulator

extern "C" int emulator_run(emulator::Launch* launch, int version, const char* entry, int arch, uint32_t cluster, void (*kernel)(void**)) {
  using namespace emulator;
  Machine& m = machine;
  m.launch = launch;
  launch->report[0] = 0;
  if (version != VERSION) {
    snprintf(launch->report, launch->report_bytes, "compiled for version %d of the emulator, this is %d", version, VERSION);
    return 1;
  }
  m.kernel = kernel;
  m.entry = entry;
  m.arch = arch;
  m.last = {entry, 0};
  m.failed = false;
  m.random = launch->seed * 0x9e3779b97f4a7c15ull + 12345;
  plan = plan_of(launch->seed);
  const uint64_t threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
  const uint64_t blocks = (uint64_t)launch->cluster[0] * launch->cluster[1] * launch->cluster[2];
  Text text;
  if (!threads || threads > MOST_THREADS) text.add("%s: %llu threads in a block: 1 to %d can be", entry, (unsigned long long)threads, MOST_THREADS);
  else if (launch->shared_bytes > most_shared(arch)) text.add("%s: %u bytes of shared memory in a block: at most %u on sm_%d", entry, launch->shared_bytes, most_shared(arch), arch / 10);
  else if (!blocks || blocks > MOST_BLOCKS || launch->grid[0] % launch->cluster[0] || launch->grid[1] % launch->cluster[1] || launch->grid[2] % launch->cluster[2])
    text.add("%s: clusters of (%u, %u, %u) blocks in a grid of (%u, %u, %u)", entry, launch->cluster[0], launch->cluster[1], launch->cluster[2], launch->grid[0], launch->grid[1], launch->grid[2]);
  else if (blocks != cluster) text.add("%s: launched in clusters of %llu blocks, compiled for %u", entry, (unsigned long long)blocks, cluster);
  if (text.used) return 1;
  gridDim = {launch->grid[0], launch->grid[1], launch->grid[2]};
  blockDim = {launch->block[0], launch->block[1], launch->block[2]};
  grid.clusters = {launch->grid[0] / launch->cluster[0], launch->grid[1] / launch->cluster[1], launch->grid[2] / launch->cluster[2]};
  grid.count = grid.left = (uint64_t)grid.clusters.x * grid.clusters.y * grid.clusters.z;
  grid.begun = grid.at = 0;
  grid.step = 1;
  // A step without a common divisor visits all of them in an order of its own.
  if (plan.shuffled && grid.count > 2) {
    auto divides = [](uint64_t a, uint64_t b) { while (b) { const uint64_t r = a % b; a = b; b = r; } return a; };
    for (grid.step = grid.count / 3 + 1 + draw() % grid.count; divides(grid.step, grid.count) != 1;) grid.step++;
    grid.at = draw() % grid.count;
  } else if (plan.order == BACKWARD) grid.at = grid.step = grid.count - 1;
  forget_sources();
  forget_knowledge();
  blocks_of_grid = (int)(grid.count * blocks);
  begin_global_shadow();
  boxes.count = 0;
  happen = go_on;
  memset(m.ready, 0, sizeof m.ready);
  for (Cluster& c : m.clusters) c.live = 0;
  m.live = m.watchers = 0;
  m.threads.reserve((int)(MOST_BLOCKS / blocks * blocks * threads));  // they stay where they are
  m.threads.count = 0;
  const Signals signals;
  const bool right = run_grid();
  m.current = nullptr;
  if (right) list_sites();
  return right ? 0 : 1;
}
