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

// The current thread's kernel has returned.
void leave() {
  Machine& m = machine;
  Thread& t = self();
  Block& b = *t.block;
  t.state = DONE;
  clear_ready(t);
  b.live--;
  b.warps[t.number / WARP].done |= 1u << t.lane;
  m.live--;
  if (t.copies.count) fail(t.copies[0].site, "copy_async that is under way when its thread is through");
  const Barrier& barrier = b.barriers[0];
  if (barrier.arrived && barrier.expected == b.threads)
    fail(barrier.site, "block_barrier that thread %d never reaches: it is through", t.number);
  leave_sm90(t);
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

// Shared memory of all blocks of one rank, between pages that nobody may touch, and what is known of it.
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

// Runs the blocks of one cluster, of which `first` is the number of the first in the grid of clusters.
bool run_cluster(dim3 cluster) {
  Machine& m = machine;
  Launch& l = *m.launch;
  const int size = l.cluster[0] * l.cluster[1] * l.cluster[2], threads = l.block[0] * l.block[1] * l.block[2];
  m.blocks.resize(size);
  m.threads.resize(size * threads);
  memset(m.ready, 0, sizeof m.ready);
  m.live = size * threads;
  for (int r = 0; r < size; r++) {
    Block& b = m.blocks[r];
    Clocks* const clocks = b.clocks;
    b = {};
    b.clocks = clocks;
    b.rank = r;
    const uint32_t x = r % l.cluster[0], y = r / l.cluster[0] % l.cluster[1], z = r / (l.cluster[0] * l.cluster[1]);
    b.index = {cluster.x * l.cluster[0] + x, cluster.y * l.cluster[1] + y, cluster.z * l.cluster[2] + z};
    b.live = b.threads = threads;
    b.first = &m.threads[r * threads];
    SharedMemory& memory = shared_memories[r];
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
      t.global = r * threads + i;
      t.index = {i % l.block[0], i / l.block[0] % l.block[1], i / (l.block[0] * l.block[1])};
      t.state = NEW;
      set_ready(t);
    }
  }
  begin_sm90();
  m.current = &m.threads[0];
  switch_from(&m.main);
  if (m.failed && m.current->state == DONE) m.leaving = m.current->stack;
  arrived();
  if (m.failed)  // whoever still waits will never go on
    for (int i = 0; i < m.threads.count; i++)
      if (m.threads[i].state == READY || m.threads[i].state == WAITING) m.stacks.give(m.threads[i].stack);
  if (m.failed) return false;
  if (sampling) count_visits();
  for (int r = 0; r < size; r++)
    for (uint32_t i = 0; i < BEHIND; i++)
      if (m.blocks[r].shared[l.shared_bytes + i] != POISON) {
        Text text;
        text.add("%s: byte %u of the %u of shared memory was written, not through store; block (%u, %u, %u)", m.entry, l.shared_bytes + i, l.shared_bytes,
                 m.blocks[r].index.x, m.blocks[r].index.y, m.blocks[r].index.z);
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

extern "C" int emulator_run(emulator::Launch* launch, int version, const char* entry, int arch, void (*kernel)(void**)) {
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
  if (text.used) return 1;
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
  const Signals signals;
  forget_sources();
  for (uint64_t i = 0; i < count && right; i++, at = (at + step) % count) {
    sampling = i < SAMPLED_BLOCKS;
    right = run_cluster({(uint32_t)(at % clusters.x), (uint32_t)(at / clusters.x % clusters.y), (uint32_t)(at / ((uint64_t)clusters.x * clusters.y))});
  }
  m.current = nullptr;
  if (right) list_conflicts();
  return right ? 0 : 1;
}
