// Narrow floats by the conversion instructions of the device.
#pragma once
namespace core {
#if !defined(FP_EMULATE) && __CUDA_ARCH__ >= 800
#define VEC_PAIRS 1
#endif
// Whether two floats are rounded to T at once.
#ifdef VEC_PAIRS
template <class T> constexpr bool PAIRED = SAME<T, bf16> || SAME<T, f16>;
template <class T> VDEV uint32_t round_pair(float lo, float hi) {
  uint32_t r;
  if constexpr (SAME<T, bf16>) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
// a b + c of two bf16 at once, each rounded once, denormals too.
VDEV uint32_t fma_pair(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
#else
template <class T> constexpr bool PAIRED = false;
template <class T> VDEV uint32_t round_pair(float, float) { return 0; }
#endif
VDEV uint16_t round_bf16(float x) {
#ifdef VEC_PAIRS
  return (uint16_t)round_pair<bf16>(x, 0.f);
#else
  return round_bf16_portable(x);
#endif
}
VDEV uint16_t round_f16(float x) {
#ifdef FP_EMULATE
  return round_f16_portable(x);
#else
  uint16_t r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
#endif
}
VDEV float read_f16(uint16_t h) {
#ifdef FP_EMULATE
  return read_f16_portable(h);
#else
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(h));
  return r;
#endif
}
}  // namespace core
