// What a CUDA device has beyond one thread's registers: shared memory, barriers, exchange within a warp, atomics, copies that run
// by themselves, matrix instructions. By inline PTX here; with FP_EMULATE by emulator_device.h, whose functions have the same names.
//
// A mask names the lanes of the warp that take part; all of them call the same function with the same mask. Shared memory is
// read and written through shared_load and shared_store (or load and store): the emulator checks those, and cannot see `p[i]`.
#pragma once
#include "vec_cuda.cuh"
#ifdef FP_EMULATE
#include "emulator_device.h"
#else

// ---- shared memory, all of it dynamic
// In a kernel: `unsigned char* name`, the block's shared memory.
#define SHARED_MEMORY(name) extern __shared__ __align__(1024) unsigned char name[]
VDEV uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
// W elements in one access: W * sizeof(T) is 1, 2, 4, 8 or 16 and p is aligned to it.
template <class T, int W> VDEV Vec<T, W> shared_load(const T* p) {
  static_assert(Accesses<T, W, W>::N == 1, "one access");
  return load<W, W>(p);
}
template <class T, int W> VDEV void shared_store(T* p, const Vec<T, W>& x) {
  static_assert(Accesses<T, W, W>::N == 1, "one access");
  store<W, W>(p, x);
}

// ---- barriers
VDEV void block_barrier() { asm volatile("barrier.cta.sync.aligned 0;" ::: "memory"); }
// Barrier 1..15 for `threads` threads of the block: whole warps.
VDEV void named_barrier(int id, int threads) { asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
VDEV void warp_barrier(uint32_t mask = ~0u) { asm volatile("bar.warp.sync %0;" ::"r"(mask) : "memory"); }

// ---- exchange within a warp; T of 1 to 8 bytes. No barrier: memory is not ordered by it.
namespace core {
template <class T, class F> VDEV T by_words(T x, F f) {
  static_assert(sizeof(T) <= 8, "1 to 8 bytes");
  uint32_t words[2] = {};
  memcpy(words, &x, sizeof x);
  words[0] = f(words[0]);
  if constexpr (sizeof(T) > 4) words[1] = f(words[1]);
  T y;
  memcpy(&y, words, sizeof y);
  return y;
}
}  // namespace core
template <class T> VDEV T shuffle_xor(T x, int lanes, uint32_t mask = ~0u) {
  return core::by_words(x, [=](uint32_t word) {
    uint32_t r;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, %3;" : "=r"(r) : "r"(word), "r"(lanes), "r"(mask));
    return r;
  });
}
// From the lane `by` further up; the last ones keep what they have.
template <class T> VDEV T shuffle_down(T x, int by, uint32_t mask = ~0u) {
  return core::by_words(x, [=](uint32_t word) {
    uint32_t r;
    asm volatile("shfl.sync.down.b32 %0, %1, %2, 0x1f, %3;" : "=r"(r) : "r"(word), "r"(by), "r"(mask));
    return r;
  });
}
template <class T> VDEV T shuffle_up(T x, int by, uint32_t mask = ~0u) {
  return core::by_words(x, [=](uint32_t word) {
    uint32_t r;
    asm volatile("shfl.sync.up.b32 %0, %1, %2, 0, %3;" : "=r"(r) : "r"(word), "r"(by), "r"(mask));
    return r;
  });
}
template <class T> VDEV T shuffle_from(T x, int lane, uint32_t mask = ~0u) {
  return core::by_words(x, [=](uint32_t word) {
    uint32_t r;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, %3;" : "=r"(r) : "r"(word), "r"(lane), "r"(mask));
    return r;
  });
}
// Bit l: that of lane l. (NVRTC has a `ballot` of its own, of old.)
VDEV uint32_t vote_ballot(bool x, uint32_t mask = ~0u) {
  uint32_t r;
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; vote.sync.ballot.b32 %0, p, %2; }" : "=r"(r) : "r"((uint32_t)x), "r"(mask));
  return r;
}
VDEV bool vote_any(bool x, uint32_t mask = ~0u) { return vote_ballot(x, mask) != 0; }
VDEV bool vote_all(bool x, uint32_t mask = ~0u) { return vote_ballot(!x, mask) == 0; }

// ---- atomics on global or shared memory; what was there before
namespace core {
// By comparing and swapping: `f` gives the new value.
template <class T, class F> VDEV T exchanged(T* p, F f) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "words");
  using U = If<sizeof(T) == 8, unsigned long long, unsigned>;
  U seen = *(volatile U*)p, expected;
  do {
    expected = seen;
    seen = atomicCAS((U*)p, expected, as<U>(f(as<T>(expected))));
  } while (seen != expected);
  return as<T>(seen);
}
}  // namespace core
template <class T> VDEV T atomic_add(T* p, T x) {
  if constexpr (SAME<T, int64_t> || SAME<T, uint64_t>) return (T)atomicAdd((unsigned long long*)p, (unsigned long long)x);
  else return atomicAdd(p, x);
}
// NaN wins.
template <class T> VDEV T atomic_max(T* p, T x) {
  if constexpr (FLOATING<T>) return core::exchanged(p, [=](T y) { return y > x || y != y ? y : x; });
  else return atomicMax(p, x);
}
template <class T> VDEV T atomic_min(T* p, T x) {
  if constexpr (FLOATING<T>) return core::exchanged(p, [=](T y) { return y < x || y != y ? y : x; });
  else return atomicMin(p, x);
}
// What this thread wrote before is seen by whoever sees what it writes, or adds, afterwards.
VDEV void memory_fence() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
// Flags between blocks, words in global memory that nothing else touches but atomics: what was done before a store_release is
// seen by whoever then reads its value by load_acquire.
template <class T> VDEV T load_acquire(const T* p) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "words");
  If<sizeof(T) == 8, unsigned long long, unsigned> x;
  if constexpr (sizeof(T) == 8) asm volatile("ld.acquire.gpu.global.b64 %0, [%1];" : "=l"(x) : "l"(__cvta_generic_to_global(p)) : "memory");
  else asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(x) : "l"(__cvta_generic_to_global(p)) : "memory");
  return core::as<T>(x);
}
template <class T> VDEV void store_release(T* p, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "words");
  const auto x = core::as<If<sizeof(T) == 8, unsigned long long, unsigned>>(value);
  if constexpr (sizeof(T) == 8) asm volatile("st.release.gpu.global.b64 [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "l"(x) : "memory");
  else asm volatile("st.release.gpu.global.b32 [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "r"(x) : "memory");
}
// Waits for a flag whose value `holds`, and gives it. Whoever sets it has to be running, whatever the order of blocks.
template <class T, class F> VDEV T wait_until(const T* p, F holds) {
  for (;;) {
    const T x = load_acquire(p);
    if (holds(x)) return x;
  }
}

// ---- copies into shared memory that run by themselves (sm_80); before, they are done when the call returns
// BYTES 4, 8 or 16, both sides aligned to it; zeros where it is not `there`, and `from` is not read.
template <int BYTES> VDEV void copy_async(uint32_t to, const void* from, bool there = true) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "an access");
#if __CUDA_ARCH__ >= 800
  const int bytes = there ? BYTES : 0;
  if constexpr (BYTES == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES), "r"(bytes) : "memory");
#else
  uint32_t words[BYTES / 4] = {};
  if (there) {
    const auto x = *(const typename AccessOf<BYTES>::type*)from;
    memcpy(words, &x, BYTES);
  }
  if constexpr (BYTES == 16) asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]) : "memory");
  else if constexpr (BYTES == 8) asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(words[0]), "r"(words[1]) : "memory");
  else asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(words[0]) : "memory");
#endif
}
// Copies since the last commit become a group.
VDEV void copy_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Until at most the N latest groups of this thread are under way. Other threads see what was copied after a barrier.
template <int N> VDEV void copy_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

// ---- matrices (sm_75): 8 x 8 elements of 2 bytes. Lane l gives the address of row l % 8 of matrix l / 8 (16 bytes, aligned),
// and gets elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of each; transposed: of column l / 4.
VDEV void load_matrix_x4(uint32_t (&r)[4], uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row_address) : "memory");
}
VDEV void load_matrix_x4_transposed(uint32_t (&r)[4], uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row_address) : "memory");
}
VDEV void load_matrix_x2(uint32_t (&r)[2], uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(row_address) : "memory");
}
VDEV void load_matrix_x2_transposed(uint32_t (&r)[2], uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(row_address) : "memory");
}

// ---- d += a b on the tensor cores. d[2 i + j]: row l / 4 + 8 i, column 2 (l % 4) + j. a: registers of (rows l / 4, + 8) for the
// first half of K, then for the second; b: of column l / 4, first half of K, then second. 32 bits hold neighbours along K.
// 16x8x16 (sm_80; f16 on sm_75 too, as two steps): T is f16 or bf16.
template <class T> VDEV void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  static_assert(SAME<T, f16> || SAME<T, bf16>, "16-bit floats");
#if __CUDA_ARCH__ >= 800
#define FP_MMA(types) asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." types ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
  if constexpr (SAME<T, f16>) FP_MMA("f16.f16");
  else FP_MMA("bf16.bf16");
#undef FP_MMA
#else
  static_assert(SAME<T, f16>, "bf16 takes sm_80");
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(b0));
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[2]), "r"(a[3]), "r"(b1));
#endif
}
// 16x8x8 (sm_80): a and b are floats, of which the tensor core reads the upper 19 bits; see tf32.
VDEV void mma_16x8x8_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// The nearest float of 10 bits of mantissa, ties away from zero (sm_80).
VDEV uint32_t tf32(float x) {
  uint32_t r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
}
// 16x8x32 (sm_80): four int8 in a register. Wraps.
VDEV void mma_16x8x32_s8(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif
