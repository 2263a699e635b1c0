// Narrow floats by instructions of x86-64, where there are some.
#pragma once
namespace core {
// float -> bf16 is one instruction, which flushes denormals: where one occurs the portable way runs.
#if defined(VEC_AVX512) && defined(__AVX512BF16__) && __has_builtin(__builtin_ia32_fpclassps512_mask) && \
    (__has_builtin(__builtin_ia32_cvtneps2bf16_512) || __has_builtin(__builtin_ia32_cvtneps2bf16_v16sf))
#define VEC_BF16 1
template <class R> VCOLD Like<uint16_t, R> round_bf16_denormals(R x) { return round_bf16_portable(x); }
#endif
template <class R> VDEV Like<uint16_t, R> round_bf16(R x) {
#ifdef VEC_BF16
  if constexpr (IS<float, 16, R>) {
    if (__builtin_expect(__builtin_ia32_fpclassps512_mask(x, 0x20, (unsigned short)-1), 0)) return round_bf16_denormals(x);
#if __has_builtin(__builtin_ia32_cvtneps2bf16_512)
    return (Like<uint16_t, R>)__builtin_ia32_cvtneps2bf16_512(x);
#else
    return (Like<uint16_t, R>)__builtin_ia32_cvtneps2bf16_v16sf(x);
#endif
  } else
#endif
    return round_bf16_portable(x);
}
// 4: the rounding mode in force, to nearest even.
template <class R> VDEV Like<uint16_t, R> round_f16(R x) {
#if defined(VEC_AVX512) && __has_builtin(__builtin_ia32_vcvtps2ph512_mask)
  if constexpr (IS<float, 16, R>) {
    return (Like<uint16_t, R>)__builtin_ia32_vcvtps2ph512_mask(x, 4, Reg<int16_t, 16>{}, (unsigned short)-1);
  } else
#endif
#if defined(__F16C__) && __has_builtin(__builtin_ia32_vcvtps2ph256)
  if constexpr (IS<float, 8, R>) return (Like<uint16_t, R>)__builtin_ia32_vcvtps2ph256(x, 4);
  else
#endif
    return round_f16_portable(x);
}
template <class H> VDEV Like<float, H> read_f16(H h) {
#if defined(VEC_AVX512) && __has_builtin(__builtin_ia32_vcvtph2ps512_mask)
  if constexpr (LANES<H> == 16) {
    return __builtin_ia32_vcvtph2ps512_mask((Reg<int16_t, 16>)h, Reg<float, 16>{}, (unsigned short)-1, 4);
  } else
#endif
#if defined(__F16C__) && __has_builtin(__builtin_ia32_vcvtph2ps256)
  if constexpr (LANES<H> == 8) return __builtin_ia32_vcvtph2ps256((Reg<int16_t, 8>)h);
  else
#endif
    return read_f16_portable(h);
}
}  // namespace core
