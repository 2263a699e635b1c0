// What sm_90a has beyond device_cuda.cuh: barriers in shared memory, tensor maps and the copies by them (TMA), clusters
// of blocks, products of warp groups (wgmma_sm90.cuh). emulator_sm90.h means the same on a host.
//
// Addresses are 32-bit shared addresses of the own block. A barrier's phase is over when all its arrivals and all bytes
// announced have come; `parity` names the phase that is waited for: 0 for the first one, 1 for the second, 0 ...
#pragma once
#ifdef FP_EMULATE
#include "emulator_sm90.h"
#else
// What sm_90a has and sm_90 has not. Asked for sm_90a, nvcc 13 compiles for sm_90 beside it: into what never runs.
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL) && !defined(__CUDACC_RTC__)
#define SM90A_ASM(...) __trap()
#else
#define SM90A_ASM(...) asm volatile(__VA_ARGS__)
#endif

// How a tensor in global memory is cut into boxes, encoded by the driver; a parameter `const __grid_constant__ TensorMap`.
struct alignas(64) TensorMap { uint64_t opaque[16]; };

// ---- barriers: 8 bytes, aligned to as many
VDEV void barrier_init(uint32_t bar, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
// Arrives, and announces bytes that copies will bring in this phase.
VDEV void barrier_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
VDEV void barrier_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
// Arrives at the barrier of the same address in block `rank` of the cluster. It orders no more than this block's own accesses:
// a release to the whole cluster is a fence of all memory for ptxas, about a microsecond on an H200.
VDEV void barrier_arrive_at(uint32_t bar, uint32_t rank) {
  asm volatile(
      "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(bar), "r"(rank) : "memory");
}
VDEV void barrier_wait(uint32_t bar, uint32_t parity) {
  asm volatile(
      "{ .reg .pred over;\nAGAIN_%=: mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n@!over bra AGAIN_%=; }"
      ::"r"(bar), "r"(parity) : "memory");
}
// Barriers that were begun are seen by copies and by the other blocks of the cluster.
VDEV void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
// What this thread wrote to shared memory is seen by copies and by wgmma.
VDEV void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- clusters
// Not `.aligned`: threads of a warp may come from different branches.
VDEV void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// The same where no accesses have to be ordered: cluster_barrier waits until all that was written is in memory.
VDEV void cluster_meet() {
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;" ::: "memory");
}
VDEV uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// ---- copies of boxes from global to shared memory, by one thread; the barrier receives their bytes
// The innermost coordinate is a multiple of 16 bytes, negative or beyond the tensor as it may be: with any other, sm_90
// ends in an illegal instruction (seen on an H200), which neither the driver's encoding nor the PTX ISA refuses.
#define TENSOR_LOAD "cp.async.bulk.tensor."
#define TENSOR_LOAD_TO "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
#define TENSOR_LOAD_RANK(r, names, ...) if constexpr (RANK == r) \
  asm volatile(TENSOR_LOAD #r TENSOR_LOAD_TO " [%0], [%1, " names "], [%2];" \
    ::"r"(to), "l"(&map), "r"(bar), __VA_ARGS__ : "memory")
template <int RANK, class... C> VDEV void tensor_load(uint32_t to, const TensorMap& map, uint32_t bar, C... coordinates) {
  static_assert(sizeof...(C) == RANK && RANK >= 1 && RANK <= 5, "a coordinate for each axis, innermost first");
  const int c[5] = {coordinates...};
  TENSOR_LOAD_RANK(1, "{%3}", "r"(c[0]));
  TENSOR_LOAD_RANK(2, "{%3, %4}", "r"(c[0]), "r"(c[1]));
  TENSOR_LOAD_RANK(3, "{%3, %4, %5}", "r"(c[0]), "r"(c[1]), "r"(c[2]));
  TENSOR_LOAD_RANK(4, "{%3, %4, %5, %6}", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
  TENSOR_LOAD_RANK(5, "{%3, %4, %5, %6, %7}", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4]));
}
#undef TENSOR_LOAD_RANK
// To the same addresses of every block of the cluster whose bit of `mask` is set; each block's barrier receives the bytes.
#define TENSOR_LOAD_RANK(r, names, ...) if constexpr (RANK == r) \
  SM90A_ASM(TENSOR_LOAD #r TENSOR_LOAD_TO ".multicast::cluster [%0], [%1, " names "], [%2], %3;" \
    ::"r"(to), "l"(&map), "r"(bar), "h"(mask), __VA_ARGS__ : "memory")
template <int RANK, class... C>
VDEV void tensor_load_multicast(uint32_t to, const TensorMap& map, uint32_t bar, uint16_t mask, C... coordinates) {
  static_assert(sizeof...(C) == RANK && RANK >= 1 && RANK <= 5, "a coordinate for each axis, innermost first");
  const int c[5] = {coordinates...};
  TENSOR_LOAD_RANK(1, "{%4}", "r"(c[0]));
  TENSOR_LOAD_RANK(2, "{%4, %5}", "r"(c[0]), "r"(c[1]));
  TENSOR_LOAD_RANK(3, "{%4, %5, %6}", "r"(c[0]), "r"(c[1]), "r"(c[2]));
  TENSOR_LOAD_RANK(4, "{%4, %5, %6, %7}", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
  TENSOR_LOAD_RANK(5, "{%4, %5, %6, %7, %8}", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4]));
}
#undef TENSOR_LOAD_RANK
VDEV void tensor_prefetch(const TensorMap& map) { asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory"); }

// ---- products of warp groups: the order of their reads and writes
VDEV void wgmma_fence() { SM90A_ASM("wgmma.fence.sync.aligned;" ::: "memory"); }
VDEV void wgmma_commit() { SM90A_ASM("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most N of the groups committed are not done.
template <int N> VDEV void wgmma_wait() { SM90A_ASM("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }

// ---- registers of each thread of a warp group: given to others, or taken
template <int N> VDEV void registers_down() { SM90A_ASM("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> VDEV void registers_up() { SM90A_ASM("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
#include "wgmma_sm90.cuh"
#endif

// A matrix in shared memory as wgmma reads it, swizzled over 128, 64 or 32 bytes. `address`: of its first element.
// K-major (16 elements of k side by side): `stride` bytes between groups of 8 rows. MN-major (a run of rows side by side,
// as long as the swizzle): `stride` between groups of 8 k, `leading` between runs.
VDEV uint64_t matrix_descriptor(uint32_t address, uint32_t leading, uint32_t stride, int swizzle_bytes = 128) {
  const uint64_t swizzle = swizzle_bytes == 128 ? 1 : swizzle_bytes == 64 ? 2 : 3;
  return (uint64_t)((address & 0x3FFFF) >> 4) | (uint64_t)((leading & 0x3FFFF) >> 4) << 16 |
         (uint64_t)((stride & 0x3FFFF) >> 4) << 32 | swizzle << 62;
}
