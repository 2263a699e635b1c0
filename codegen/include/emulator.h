// CUDA for a host compiler (-DFP_EMULATE): the language, what vec_cuda.cuh uses of the device, and the checks of memory accesses.
// emulator_device.h has the vocabulary of device_cuda.cuh, codegen/runtime/emulator.cpp the threads. Kept small: every unit reads it.
//
// What it checks stands in docs/emulator.md. What it cannot see:
// - Memory that is touched by `p[i]`: of shared memory nothing is noted, of global memory only what lies outside of all tensors.
// - Values that other blocks would see of stores that nothing orders: that they are not ordered is reported instead.
// - Reads before writes by copying hardware that no fence.proxy.async parts: only what threads wrote has to be fenced.
// - Lanes of a warp that parted and come to `.aligned` instructions one after the other.
// - Registers: their number, spills, setmaxnreg's effect; stacks beyond 256 KiB aside, local memory.
// - Time: divergence, latencies, occupancy. Bank conflicts are counted where shared_load, shared_store and load_matrix are, sectors of
//   global memory where load, store and their kin are.
// - How tensor cores round: sums here are of floats, in order, rounded each; exact where all sums are.
// - Some races of a write with reads before it: of those since a place's last write two are kept, the first, and the last by another
//   thread.
#pragma once
#include <stdint.h>
#include <string.h>
#define VDEV inline
#define VCOLD inline
#define VCOLD_LANES inline
#define VEC_UNROLL
#define VCONST inline constexpr
#define VTABLE static const
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)
struct uint2 { uint32_t x, y; };
struct uint4 { uint32_t x, y, z, w; };
struct dim3 { uint32_t x = 1, y = 1, z = 1; };
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float fabsf(float a) { return __builtin_fabsf(a); }
inline double fabs(double a) { return __builtin_fabs(a); }
inline float copysignf(float a, float b) { return __builtin_copysignf(a, b); }
inline double copysign(double a, double b) { return __builtin_copysign(a, b); }
inline float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
inline double __dsqrt_rn(double a) { return __builtin_sqrt(a); }
template <class T> inline void __stcs(T* p, T x) { *p = x; }

namespace emulator {
constexpr int VERSION = 2;  // of everything between a kernel's file and the runtime; binaries of others are refused

// Where in a kernel's source something is called. Kernels are printed after `#line 1 "ENTRY"`.
struct Site {
  const char* file;
  int line;
  // As a default argument: where the function is called.
  static constexpr Site caller(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
};

// A tensor or temporary of a launch, the only global memory there is.
struct Buffer {
  enum Kind : int32_t { INPUT, OUTPUT, TEMPORARY };
  uint64_t start, bytes;
  const char* name;
  uint8_t* written;  // per byte: 1 once a kernel wrote it; nullptr where all was written before
  int32_t kind;
};

// What a place in the source took of shared memory, in passes through its banks, and of global memory, in sectors; and the
// least that could have been.
struct SiteCount {
  char file[48];
  int32_t line;
  int32_t unused;
  int64_t passes, least_passes, sectors, least_sectors;
};

// One launch. codegen/launch/emulator.py has the same fields.
struct Launch {
  void** args;  // of each parameter the address of its value
  uint32_t grid[3], block[3], cluster[3];
  uint32_t shared_bytes;
  uint64_t seed;     // of the order of threads and of how late copies are
  Buffer* buffers;   // in order of their addresses
  char* report;      // what went wrong, "" if nothing
  SiteCount* sites;
  int32_t buffer_count, report_bytes, site_capacity, site_count;
  int32_t waited, unused;  // whether some thread waited for others
  int64_t switches, accesses;  // so many there were
};

enum Access : int32_t { LOAD, STORE, ATOMIC, ACQUIRE, RELEASE };
}  // namespace emulator

extern "C" {
extern dim3 threadIdx, blockIdx, blockDim, gridDim;
// Runs all threads. 0, or 1 and a report. cluster: blocks that share one, as the kernel's source says.
int emulator_run(emulator::Launch* launch, int version, const char* entry, int arch, uint32_t cluster, void (*kernel)(void**));
// Checks one access of `bytes` bytes, aligned to them, to global or shared memory.
void emulator_access(const void* p, int bytes, emulator::Access access, const char* file, int line);
}
// The caller's place as a last parameter, and its way on to another function.
#define FP_SITE emulator::Site site = emulator::Site::caller()
#define FP_AND_SITE , FP_SITE
#define FP_HERE , site
#define FP_CHECK(p, bytes, access) emulator_access(p, bytes, emulator::access, site.file, site.line)

namespace emulator {
// Calls a kernel with arguments at these addresses.
struct Call {
  template <class... A> Call(void (*kernel)(A...), A... a) { kernel(a...); }
};
template <class... A> void call(void (*kernel)(A...), void** args) { Call{kernel, *(A*)*args++...}; }
}  // namespace emulator
// What a file has for each kernel: int emulate_ENTRY(Launch*). __CUDA_ARCH__ is the architecture that is emulated.
#define FP_LAUNCHER(space, entry, cluster) \
  extern "C" __attribute__((visibility("default"))) int emulate_##entry(emulator::Launch* launch) { \
    return emulator_run(launch, emulator::VERSION, #entry, __CUDA_ARCH__, cluster, [](void** args) { emulator::call(space::entry, args); }); \
  }
