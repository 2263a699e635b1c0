// What the emulator knows of the clusters of blocks that run: threads, warps, blocks. All in one thread of the host.
#pragma once
#include <stdlib.h>
#include <string.h>
#define FP_EMULATE
#include "vec_cuda.cuh"
#include "emulator_device.h"
#include "emulator_sm90.h"
#include "fiber.h"

namespace emulator {
constexpr int WARP = 32, BARRIERS = 16, MOST_THREADS = 1024, MOST_BLOCKS = 16;
constexpr uint32_t SHARED_BASE = 1024;  // shared address of a block's first byte: 0 is none

// A list that grows; new items are zeros. No destructor: it lives as long as the process.
template <class T> struct Array {
  T* items = nullptr;
  int count = 0, capacity = 0;
  T& operator[](int i) { return items[i]; }
  void push(const T& x) {
    if (count == capacity) reserve(capacity ? 2 * capacity : 8);
    items[count++] = x;
  }
  void reserve(int n) {
    if (n <= capacity) return;
    items = (T*)realloc((void*)items, n * sizeof(T));
    memset((void*)(items + capacity), 0, (n - capacity) * sizeof(T));
    capacity = n;
  }
  void resize(int n) {
    reserve(n);
    count = n;
  }
};

struct Block;
struct Knowledge;

struct Copy {  // a cp.async
  uint32_t to;
  const void* from;
  int bytes, group;
  bool there;
  Site site;
};

enum State : uint8_t { NEW, READY, WAITING, DONE };
enum Wait : uint8_t { NOTHING, AT_BARRIER, AT_WARP, AT_PHASE, AT_CLUSTER, AT_MEMORY };

// What lanes of a warp do together: completed for all of them by the last to come.
using Collective = void (*)(struct Thread* lanes, uint32_t mask);

struct Thread {
  Place place;
  unsigned char* stack;
  Block* block;
  dim3 index;
  int number, lane;  // in its block, in its warp
  int global;        // among all that run
  State state;
  Wait wait;
  Site site;         // where it waits
  const char* what;  // it does there
  int barrier, expected;  // AT_BARRIER: which, and how many threads it names. AT_PHASE: address and parity
  Collective collective;
  uint32_t mask;
  void* frame;       // what it brought to the collective, and gets from it
  Array<Copy> copies;
  int groups;        // committed
  const void* watched;  // AT_MEMORY: what it waits for a change of
  Knowledge *known;     // of other blocks' work, beside what all of the block know
  Knowledge *observed;  // will be known after a fence
  Knowledge *fenced;    // goes with what it does to flags
  void* extension;   // of later hardware
};

// Lanes that wait for each other: the first such group of a warp, there is seldom a second one.
struct Warp {
  uint32_t done, waiting, mask;
  Collective collective;
};

struct Barrier {
  int arrived, expected;
  Site site;
};

struct Clocks;
struct Byte;

// Blocks that run together, in slots side by side.
struct Cluster {
  int first, size;
  int live;      // threads
  int arrived;   // at the cluster's barrier
  bool orders;   // and it orders memory
  Site site;
  bool sampled;  // bank conflicts are counted
};

struct Block {
  dim3 index;
  int number;             // in the grid
  int slot, rank, live, threads;
  Cluster* cluster;
  Thread* first;
  unsigned char* shared;  // the same for all blocks of a slot, as are the following
  Byte* shadow;           // of shared memory
  Clocks* clocks;         // of the threads' accesses to memory
  Knowledge* known;       // of other blocks' work, by all threads
  bool learned;           // some thread knows more
  Barrier barriers[BARRIERS];
  Warp warps[MOST_THREADS / WARP];
  int registers[MOST_THREADS / WARP];  // that a thread of the warp has now; 0: what the launch gave it
};

struct Machine {
  Launch* launch = nullptr;
  void (*kernel)(void**) = nullptr;
  Thread* current = nullptr;
  Array<Thread> threads;
  Block blocks[MOST_BLOCKS] = {};
  Cluster clusters[MOST_BLOCKS] = {};  // by their first slot
  uint64_t ready[MOST_THREADS * MOST_BLOCKS / 64] = {};
  int live = 0;  // threads of all clusters that run
  int watchers = 0;  // threads that wait for a change of memory
  Place main = {};
  Stacks stacks;
  unsigned char* leaving = nullptr;  // a stack that nobody needs once we have switched away from it
  uint64_t random = 1;
  const char* entry = "";
  int arch = 0;  // as __CUDA_ARCH__
  Site last{"", 0};  // of the access to memory that was checked last
  bool failed = false;
};
inline Machine machine __attribute__((visibility("hidden")));

inline Thread& self() { return *machine.current; }
inline Block& block() { return *machine.current->block; }
// The block of a rank in the same cluster.
inline Block& peer(const Block& b, int rank) { return machine.blocks[b.cluster->first + rank]; }
inline Thread* warp_of(const Thread& t) { return t.block->first + (t.number & ~(WARP - 1)); }
// The lanes that there are.
inline uint32_t lanes_of(const Thread& t) {
  const int there = t.block->threads - (t.number & ~(WARP - 1));
  return there >= WARP ? ~0u : (1u << there) - 1;
}
inline bool same(Site a, Site b) { return a.line == b.line && (a.file == b.file || !strcmp(a.file, b.file)); }
}  // namespace emulator
