// Instructions of x86-64 that vector extensions have no spelling for, by the compilers' builtins: immintrin.h would cost
// 0.2 s a file. Where a builtin is missing (other names, other machine) the portable way below gives the same bits.
#pragma once
#ifndef __has_builtin
#define __has_builtin(x) 0
#endif
namespace core {
template <class S, int L, class R> constexpr bool IS = SAME<Element<R>, S>&& LANES<R> == L;

// a * b + c, rounded once. Without an instruction each lane is a call, which is not worth inlining.
VDEV float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
VDEV double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
template <class R> __attribute__((noinline)) R fma_lanes(const R& a, const R& b, const R& c) {
  R r;
  for (int l = 0; l < LANES<R>; l++) r[l] = fma(a[l], b[l], c[l]);
  return r;
}
template <class R> VDEV R fma(R a, R b, R c) {
#if __has_builtin(__builtin_elementwise_fma) && (defined(__FMA__) || defined(__ARM_FEATURE_FMA))
  return __builtin_elementwise_fma(a, b, c);
#else
#if defined(VEC_AVX512) && __has_builtin(__builtin_ia32_vfmaddps512_mask)
  if constexpr (IS<float, 16, R>) return __builtin_ia32_vfmaddps512_mask(a, b, c, (unsigned short)-1, 4);
  else if constexpr (IS<double, 8, R>) return __builtin_ia32_vfmaddpd512_mask(a, b, c, (unsigned char)-1, 4);
  else  // and what the next block has for fewer lanes
#endif
#if defined(__FMA__) && __has_builtin(__builtin_ia32_vfmaddps256)
  if constexpr (IS<float, 8, R>) return __builtin_ia32_vfmaddps256(a, b, c);
  else if constexpr (IS<double, 4, R>) return __builtin_ia32_vfmaddpd256(a, b, c);
  else if constexpr (IS<float, 4, R>) return __builtin_ia32_vfmaddps(a, b, c);
  else if constexpr (IS<double, 2, R>) return __builtin_ia32_vfmaddpd(a, b, c);
  else return each_lane([](auto x, auto y, auto z) { return fma(x, y, z); }, a, b, c);
#else
  return fma_lanes(a, b, c);
#endif
#endif
}
template <class R> VDEV R sqrt(R a) {
  if constexpr (SAME<R, float>) return __builtin_sqrtf(a);
  else if constexpr (SAME<R, double>) return __builtin_sqrt(a);
#if __has_builtin(__builtin_elementwise_sqrt)
  else return __builtin_elementwise_sqrt(a);
#else
#if defined(VEC_AVX512) && __has_builtin(__builtin_ia32_sqrtps512_mask)
  else if constexpr (IS<float, 16, R>) return __builtin_ia32_sqrtps512_mask(a, a, (unsigned short)-1, 4);
  else if constexpr (IS<double, 8, R>) return __builtin_ia32_sqrtpd512_mask(a, a, (unsigned char)-1, 4);
#endif
#if defined(__AVX__) && __has_builtin(__builtin_ia32_sqrtps256)
  else if constexpr (IS<float, 8, R>) return __builtin_ia32_sqrtps256(a);
  else if constexpr (IS<double, 4, R>) return __builtin_ia32_sqrtpd256(a);
#endif
#if defined(__SSE2__) && __has_builtin(__builtin_ia32_sqrtps)
  else if constexpr (IS<float, 4, R>) return __builtin_ia32_sqrtps(a);
  else if constexpr (IS<double, 2, R>) return __builtin_ia32_sqrtpd(a);
#endif
  else return each_lane([](auto x) { return sqrt(x); }, a);
#endif
}
// The product of the low 32 bits of each 64-bit lane and m. Vectors have no narrower operands to say so with, and g++ takes
// the masked spelling for a product of 64 bits.
template <class R> VDEV R low_product(R a, uint32_t m) {
  if constexpr (SCALAR<R>) return (R)(uint32_t)a * m;
#if defined(VEC_AVX512) && __has_builtin(__builtin_ia32_pmuludq512_mask)
  else if constexpr (LANES<R> == 8) {
    return (R)__builtin_ia32_pmuludq512_mask((Reg<int, 16>)a, (Reg<int, 16>)fill<R>((uint64_t)m), Reg<long long, 8>{}, -1);
  }
#endif
#if defined(__AVX2__) && __has_builtin(__builtin_ia32_pmuludq256)
  else if constexpr (LANES<R> == 4) return (R)__builtin_ia32_pmuludq256((Reg<int, 8>)a, (Reg<int, 8>)fill<R>((uint64_t)m));
#endif
#if defined(__SSE2__) && __has_builtin(__builtin_ia32_pmuludq128)
  else if constexpr (LANES<R> == 2) return (R)__builtin_ia32_pmuludq128((Reg<int, 4>)a, (Reg<int, 4>)fill<R>((uint64_t)m));
#endif
  else return (a & 0xffffffffull) * (uint64_t)m;
}
// What one instruction of AVX-512 does, for the registers that have it; the portable spelling is at its users.
#if defined(VEC_AVX512) && __has_builtin(__builtin_ia32_scalefps512_mask) && __has_builtin(__builtin_ia32_rangeps512_mask)
template <class R> constexpr bool HAS_SCALE = IS<float, 16, R> || IS<double, 8, R>;
// x 2^n for whole n, rounded once, whatever the exponents.
template <class R> VDEV R scaled(R x, R n) {
  if constexpr (IS<float, 16, R>) return __builtin_ia32_scalefps512_mask(x, n, x, (unsigned short)-1, 4);
  else return __builtin_ia32_scalefpd512_mask(x, n, x, (unsigned char)-1, 4);
}
// The same, but 0 in lanes where at < least: what becomes too small for a denormal takes Intel's CPUs 70 ns a register.
template <class R> VDEV R scaled_from(R x, R n, R at, R least) {
#if __has_builtin(__builtin_ia32_cmpps512_mask)
  constexpr int NOT_LESS = 0x15;  // nor without an order
  if constexpr (IS<float, 16, R>) {
    const auto kept = __builtin_ia32_cmpps512_mask(at, least, NOT_LESS, (unsigned short)-1, 4);
    return __builtin_ia32_scalefps512_mask(x, n, R{}, kept, 4);
  } else {
    const auto kept = __builtin_ia32_cmppd512_mask(at, least, NOT_LESS, (unsigned char)-1, 4);
    return __builtin_ia32_scalefpd512_mask(x, n, R{}, kept, 4);
  }
#else
  return scaled(at < least ? R{} : x, n);
#endif
}
// The larger (MAX) or smaller of two numbers, +0 above -0; of a NaN and a number the number.
template <bool MAX, class R> VDEV R extreme(R a, R b) {
  if constexpr (IS<float, 16, R>) return __builtin_ia32_rangeps512_mask(a, b, MAX ? 5 : 4, a, (unsigned short)-1, 4);
  else return __builtin_ia32_rangepd512_mask(a, b, MAX ? 5 : 4, a, (unsigned char)-1, 4);
}
// a where it is larger (MAX) or smaller than b, else b, which may be NaN.
template <bool MAX, class R> VDEV R beyond(R a, R b) {
#if __has_builtin(__builtin_ia32_maxps512_mask)  // g++ does not see that this is what follows #else
  if constexpr (IS<float, 16, R> && MAX) return __builtin_ia32_maxps512_mask(a, b, a, (unsigned short)-1, 4);
  else if constexpr (IS<float, 16, R>) return __builtin_ia32_minps512_mask(a, b, a, (unsigned short)-1, 4);
  else if constexpr (MAX) return __builtin_ia32_maxpd512_mask(a, b, a, (unsigned char)-1, 4);
  else return __builtin_ia32_minpd512_mask(a, b, a, (unsigned char)-1, 4);
#else
  if constexpr (MAX) return a > b ? a : b;
  else return a < b ? a : b;
#endif
}
#else
template <class R> constexpr bool HAS_SCALE = false;
template <bool MAX, class R> VDEV R beyond(R a, R b);
template <class R> VDEV R scaled(R x, R n);
template <class R> VDEV R scaled_from(R x, R n, R at, R least);
template <bool MAX, class R> VDEV R extreme(R a, R b);
#endif
template <class R> constexpr bool HAS_UNIT = false;
template <class R> constexpr bool HAS_EXTREME = false;
template <bool MAX, class R> VDEV R extreme_or_nan(R a, R b);
// Whether a lane of a mask is set.
template <class M> VDEV bool any(M m) {
  if constexpr (SCALAR<M>) return m;
#if defined(VEC_AVX512) && __has_builtin(__builtin_ia32_cvtd2mask512)
  else if constexpr (IS<int32_t, 16, M>) return __builtin_ia32_cvtd2mask512(m);
  else if constexpr (IS<int64_t, 8, M>) return __builtin_ia32_cvtq2mask512((Reg<long long, 8>)m);
#endif
#if defined(__AVX__) && __has_builtin(__builtin_ia32_movmskps256)
  else if constexpr (sizeof(M) == 32) return __builtin_ia32_movmskps256(as<Reg<float, 8>>(m));
#endif
#if defined(__SSE2__) && __has_builtin(__builtin_ia32_movmskps)
  else if constexpr (sizeof(M) == 16) return __builtin_ia32_movmskps(as<Reg<float, 4>>(m));
#endif
  else {
    bool r = false;
    for (int l = 0; l < LANES<M>; l++) r |= m[l] != 0;
    return r;
  }
}
}  // namespace core
VDEV void stream_fence() {
#ifdef __SSE2__
  __builtin_ia32_sfence();
#endif
}
