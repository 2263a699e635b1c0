// Vec<T, W> on CUDA: W registers a thread, global accesses of up to 16 bytes. README.md says how the files stack.
//
// Compile with --fmad=false and without --use_fast_math: then +, -, *, / on scalars are the IEEE operations of vec_cpu.h.
// With FP_EMULATE a host compiler takes this file, and emulator.h plays the device.
#pragma once
#ifdef FP_EMULATE
#include "emulator.h"
#else
#ifdef __CUDACC_RTC__  // NVRTC comes without the system's headers
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned uint32_t;
typedef unsigned long long uint64_t;
#else
#include <stdint.h>
#include <string.h>
#endif
#define VDEV __device__ __forceinline__
#define VCOLD __device__ __noinline__  // a path that is seldom taken; arguments and result by value, to stay in registers
#define VCOLD_LANES VDEV               // the lanes of a register that take such a path
#define VCONST __host__ __device__ __forceinline__ constexpr  // of constants, which nvcc computes for the host, too
#define VTABLE static __device__ const
#define VEC_UNROLL _Pragma("unroll")
// Accesses to memory take their caller's place with them and are checked: in the emulator.
#define FP_AND_SITE
#define FP_HERE
#define FP_CHECK(p, bytes, access)
#endif
#define VEC_CUDA 1
#define RESTRICT __restrict__
#ifdef FP_INDEX64
typedef long long idx_t;
#else
typedef int idx_t;
#endif
#include "vec_elements.h"

// What a lane of T holds: narrow floats their bits, a boolean a bool.
template <class T> struct LaneOf { using type = T; };
template <> struct LaneOf<f16> { using type = uint16_t; };
template <> struct LaneOf<bf16> { using type = uint16_t; };
template <> struct LaneOf<f8e4m3> { using type = uint8_t; };
template <> struct LaneOf<f8e5m2> { using type = uint8_t; };
template <> struct LaneOf<boolean> { using type = bool; };
template <class T> using Lane = typename LaneOf<T>::type;
template <class T, int W> struct Vec { Lane<T> v[W]; };

// ---- registers, which are scalars here: the names that the shared files use
template <class R> using Element = R;
template <class R> constexpr bool SCALAR = true;
template <class R> constexpr int LANES = 1;
template <class S, class R> using Like = S;
template <class R> using IntLike = Int<sizeof(R)>;
template <class R> using UintLike = Uint<sizeof(R)>;
template <class R> using WrapLike = Uint<sizeof(R) == 8 ? 8 : 4>;

namespace core {
template <class To, class R> VDEV To as(R x) {
  static_assert(sizeof(To) == sizeof(R), "the bits of one type as another of the same size");
  if constexpr (SAME<To, R>) return x;
  else {
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
  }
}
template <class S, class R> VDEV S convert(R x) { return (S)x; }
template <class R> VDEV R lane(const R& x, int) { return x; }
template <class R> VDEV void set_lane(R& x, int, R y) { x = y; }
template <class R> VDEV R fill(R x) { return x; }
template <class S> VDEV bool mask_like(bool m) { return m; }
VDEV bool boolean_lanes(bool m) { return m; }
VDEV int32_t truth(bool x) { return x; }
VDEV bool any(bool m) { return m; }
VDEV float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
VDEV double fma(double a, double b, double c) { return __fma_rn(a, b, c); }
VDEV float sqrt(float a) { return __fsqrt_rn(a); }
VDEV double sqrt(double a) { return __dsqrt_rn(a); }
VDEV float float_abs(float x) { return fabsf(x); }  // costs nothing where its user takes it in
VDEV double float_abs(double x) { return fabs(x); }
VDEV float signed_as(float x, float y) { return copysignf(x, y); }
VDEV double signed_as(double x, double y) { return copysign(x, y); }
VDEV uint64_t low_product(uint64_t a, uint32_t m) { return (uint64_t)(uint32_t)a * m; }
// See vec_instructions.h.
template <class R> constexpr bool HAS_SCALE = false;
template <class R> VDEV R scaled(R x, R n);
template <bool MAX, class R> VDEV R extreme(R a, R b);
template <bool MAX, class R> VDEV R beyond(R a, R b);
// a b, 0 instead of a denormal.
VDEV float flushed_product(float a, float b) {
#ifdef FP_EMULATE
  const float r = a * b;
  return fabsf(r) < 0x1p-126f || fabsf(a) < 0x1p-126f ? 0.0f : r;
#else
  float r;
  asm("mul.rn.ftz.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#endif
}
VCOLD float quotient_far(float a, float b) { return a / b; }
template <int W> VCOLD bool any_beyond(Vec<float, W> x, float limit) {
  bool r = false;
  VEC_UNROLL for (int i = 0; i < W; i++) r |= !(fabsf(x.v[i]) <= limit);
  return r;
}
// The special function unit: see vec_exp.h. Errors by the PTX ISA: 2^-22 of 2^x, 2^-22.9 of 1 / sqrt x, an ulp of 1 / x. Denormals
// are 0 in the first two.
#ifndef FP_EMULATE
template <class R> constexpr bool HAS_UNIT = SAME<R, float>;
VDEV float unit_exp2(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
VDEV float unit_inverse(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
VDEV float unit_exp2_any(float x) {
  float r;
  asm("ex2.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
VDEV float unit_rsqrt(float x) {
  float r;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
VDEV float saturated_fma(float a, float b, float c) {  // between 0 and 1; 0 of a NaN
  float r;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(b), "f"(c));
  return r;
}
#elif !defined(FP_UNIT_EXP2)
template <class R> constexpr bool HAS_UNIT = false;
#endif
// From sm_80 on: NaN where one is, and +0 above -0.
#if !defined(FP_EMULATE) && __CUDA_ARCH__ >= 800
template <class R> constexpr bool HAS_EXTREME = SAME<R, float>;
template <bool MAX> VDEV float extreme_or_nan(float a, float b) {
  float r;
  if constexpr (MAX) asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  else asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
#else
template <class R> constexpr bool HAS_EXTREME = false;
template <bool MAX, class R> VDEV R extreme_or_nan(R a, R b);
#endif
}  // namespace core
#if defined(FP_EMULATE) && defined(FP_UNIT_EXP2)
#include "emulator_unit.h"
#endif
#include "vec_int.h"
#include "vec_float.h"
#include "vec_narrow.h"
#include "vec_narrow_cuda.cuh"
#include "vec_cast.h"

// ---- halves and lanes; l is a constant after unrolling, or the lanes lie in memory
template <class T, int W> VDEV Vec<T, W / 2> low(const Vec<T, W>& x) {
  Vec<T, W / 2> r;
  VEC_UNROLL for (int i = 0; i < W / 2; i++) r.v[i] = x.v[i];
  return r;
}
template <class T, int W> VDEV Vec<T, W / 2> high(const Vec<T, W>& x) {
  Vec<T, W / 2> r;
  VEC_UNROLL for (int i = 0; i < W / 2; i++) r.v[i] = x.v[W / 2 + i];
  return r;
}
template <class T, int H> VDEV Vec<T, 2 * H> join(const Vec<T, H>& a, const Vec<T, H>& b) {
  Vec<T, 2 * H> r;
  VEC_UNROLL for (int i = 0; i < H; i++) { r.v[i] = a.v[i]; r.v[H + i] = b.v[i]; }
  return r;
}
template <class T> VDEV T bits(uint64_t u) {
  T x;
  memcpy(&x, &u, sizeof x);
  return x;
}
template <class T> VDEV Lane<T> to_lane(T x) {
  if constexpr (SAME<T, boolean>) return x.u != 0;
  else return core::as<Lane<T>>(x);
}
template <class T> VDEV T from_lane(Lane<T> x) {
  if constexpr (SAME<T, boolean>) return boolean{(uint8_t)x};
  else return core::as<T>(x);
}
template <class T, int W> VDEV T get(const Vec<T, W>& x, int l) { return from_lane<T>(x.v[l]); }
template <class T, int W> VDEV void set(Vec<T, W>& x, int l, T y) { x.v[l] = to_lane(y); }
template <int W, class T> VDEV Vec<T, W> splat(T x) {
  Vec<T, W> r;
  VEC_UNROLL for (int i = 0; i < W; i++) r.v[i] = to_lane(x);
  return r;
}
template <int W, class T> VDEV Vec<T, W> splat(const Vec<T, 1>& x) { return splat<W>(from_lane<T>(x.v[0])); }
template <int W> VDEV Vec<int64_t, W> count() {  // 0, 1, 2, ...
  Vec<int64_t, W> r;
  VEC_UNROLL for (int i = 0; i < W; i++) r.v[i] = i;
  return r;
}

// ---- an operation on registers applied to Vecs
#define VEC_MAP1(name, op) template <class T, int W> VDEV Vec<T, W> name(const Vec<T, W>& a) { \
  Vec<T, W> r; VEC_UNROLL for (int i = 0; i < W; i++) r.v[i] = op(a.v[i]); return r; }
#define VEC_MAP2(name, op) template <class T, int W> VDEV Vec<T, W> name(const Vec<T, W>& a, const Vec<T, W>& b) { \
  Vec<T, W> r; VEC_UNROLL for (int i = 0; i < W; i++) r.v[i] = op(a.v[i], b.v[i]); return r; }
#define VEC_MAP3(name, op) template <class T, int W> \
VDEV Vec<T, W> name(const Vec<T, W>& a, const Vec<T, W>& b, const Vec<T, W>& c) { \
  Vec<T, W> r; VEC_UNROLL for (int i = 0; i < W; i++) r.v[i] = op(a.v[i], b.v[i], c.v[i]); return r; }
#define VEC_MATH1 VEC_MAP1
#define VEC_MATH2 VEC_MAP2
#define VEC_TEST1(name, op) template <class T, int W> VDEV Vec<boolean, W> name(const Vec<T, W>& a) { \
  Vec<boolean, W> r; VEC_UNROLL for (int i = 0; i < W; i++) r.v[i] = op(a.v[i]); return r; }
#define VEC_TEST2(name, op) template <class T, int W> VDEV Vec<boolean, W> name(const Vec<T, W>& a, const Vec<T, W>& b) { \
  Vec<boolean, W> r; VEC_UNROLL for (int i = 0; i < W; i++) r.v[i] = op(a.v[i], b.v[i]); return r; }
template <class T, int W> VDEV Vec<T, W> where_(const Vec<boolean, W>& c, const Vec<T, W>& a, const Vec<T, W>& b) {
  Vec<T, W> r;
  VEC_UNROLL for (int i = 0; i < W; i++) r.v[i] = c.v[i] ? a.v[i] : b.v[i];
  return r;
}
template <class U, class F, class T, int W> VDEV Vec<U, W> apply(F f, const Vec<T, W>& x) {
  Vec<U, W> r;
  VEC_UNROLL for (int i = 0; i < W; i++) r.v[i] = f(x.v[i]);
  return r;
}
template <class U, class T, int W> VDEV Vec<U, W> cast(const Vec<T, W>& x) {
  if constexpr (SAME<T, U>) return x;
  else if constexpr (SAME<T, bf16> && SAME<U, float> && W > 1) {  // two lanes of a register, an instruction for each
    uint32_t pairs[W / 2];
    memcpy(pairs, &x, sizeof x);
    Vec<U, W> r;
    VEC_UNROLL for (int i = 0; i < W; i += 2) {
      r.v[i] = core::as<float>(pairs[i / 2] << 16);
      r.v[i + 1] = core::as<float>(pairs[i / 2] & 0xffff0000u);
    }
    return r;
  } else if constexpr (core::PAIRED<U> && W > 1 && !SAME<T, boolean>) {
    uint32_t pairs[W / 2];
    VEC_UNROLL for (int i = 0; i < W; i += 2)
      pairs[i / 2] = core::round_pair<U>(core::convert_lanes<float, T>(x.v[i]), core::convert_lanes<float, T>(x.v[i + 1]));
    Vec<U, W> r;
    memcpy(&r, pairs, sizeof r);
    return r;
  } else return apply<U>([](auto r) { return core::convert_lanes<U, T>(r); }, x);
}
template <int W> VDEV Vec<float, W> widen(const Vec<bf16, W>& x) { return cast<float>(x); }
template <class U, int W> VDEV Vec<U, W> cast_exact(const Vec<float, W>& x) { return cast<U>(x); }
// a + b, a - b and a b of f32 rounded to bf16. An f32 has more than twice the bits of a bf16 and two, so that rounding the exact
// result at once gives the same (Figueroa, "When is double rounding innocuous?", 1995); a product that f32 has only as a
// denormal has at most 16 bits, and would need 17 to differ. So two lanes take one instruction, from sm_80 on.
#ifdef VEC_PAIRS
#define VEC_NARROW2(name, op, pairs) template <int W> VDEV Vec<bf16, W> name(const Vec<bf16, W>& x, const Vec<bf16, W>& y) { \
  if constexpr (W == 1) return cast<bf16>(op(cast<float>(x), cast<float>(y))); \
  else { \
    uint32_t a[W / 2], b[W / 2]; \
    memcpy(a, &x, sizeof x); \
    memcpy(b, &y, sizeof y); \
    VEC_UNROLL for (int i = 0; i < W / 2; i++) a[i] = pairs; \
    Vec<bf16, W> r; \
    memcpy(&r, a, sizeof r); \
    return r; \
  } }
#else
#define VEC_NARROW2(name, op, pairs) template <int W> VDEV Vec<bf16, W> name(const Vec<bf16, W>& x, const Vec<bf16, W>& y) { \
  return cast<bf16>(op(cast<float>(x), cast<float>(y))); }
#endif
#include "vec_memory_cuda.cuh"
VDEV void stream_fence() {}
#include "vec_math.h"
VEC_NARROW2(narrow_add_, add_, core::fma_pair(a[i], 0x3f803f80u, b[i]))
VEC_NARROW2(narrow_sub_, sub_, core::fma_pair(b[i], 0xbf80bf80u, a[i]))
VEC_NARROW2(narrow_mul_, mul_, core::fma_pair(a[i], b[i], 0x80008000u))

// ---- a shorter way to the same bits, for vectors whose lanes are all ordinary numbers
// a / b, one b for all lanes. With r = 1 / b and q = a r rounded, q + (a - q b) r is a / b rounded where q is within an ulp of it
// and nothing underflows (Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor"). q may be
// off by one and a half: that this changes no quotient is not proved, but tested where it is hardest, next to the middle of
// two floats (tests/cpu/test_vec_divided.py). A zero keeps its sign since b is above 0.
template <int W> VDEV Vec<float, W> divided_(const Vec<float, W>& a, const Vec<float, 1>& b) {
  const float by = b.v[0];
  float lost = 0;  // what is below 2^-100, and NaN where an infinity is: sums cost less than so many comparisons
  VEC_UNROLL for (int i = 0; i < W; i++) {
    lost += core::float_abs(core::fma(core::flushed_product(a.v[i], 0x1p-26f), -0x1p26f, a.v[i]));
  }
  bool ordinary = lost == 0 && by >= 0x1p-20f && by <= 0x1p20f;
  if (__builtin_expect(by < 1, false)) ordinary &= !core::any_beyond(a, 0x1p100f);  // where quotients may overflow
  Vec<float, W> r;
  if (__builtin_expect(ordinary, true)) {
#ifdef FP_EMULATE
    const float inverse = 1.0f / by;
#else
    const float near = core::unit_inverse(by);
    const float inverse = core::fma(-core::fma(by, near, -1.0f), near, near);  // as ptxas has 1 / by, without its exceptions
#endif
    VEC_UNROLL for (int i = 0; i < W; i++) {
      const float q = a.v[i] * inverse;
      r.v[i] = core::fma(-core::fma(q, by, -a.v[i]), inverse, q);
    }
  } else {
    VEC_UNROLL for (int i = 0; i < W; i++) r.v[i] = core::quotient_far(a.v[i], by);
  }
  return r;
}
