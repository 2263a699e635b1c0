// A model of the special function unit, for tests of what is made of it (-DFP_UNIT_EXP2=E -DFP_UNIT_INVERSE=I
// -DFP_UNIT_RSQRT=R): 2^x is off by E, 1 / x by I and 1 / sqrt x by R ulps, before they are rounded. A device has errors of its own for each argument, within these.
#pragma once
namespace core {
template <class R> constexpr bool HAS_UNIT = SAME<R, float>;
inline float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }
inline float off_by(double x, double ulps) {
  int exponent;
  __builtin_frexp(x, &exponent);
  const double error = __builtin_ldexp(x < 0 ? -ulps : ulps, exponent - 24);
  return flushed((float)(x == 0 || !__builtin_isfinite(x) ? x : x + error));
}
inline float unit_exp2(float x) { return off_by(__builtin_exp2(flushed(x)), FP_UNIT_EXP2); }
inline float unit_inverse(float x) { return off_by(1.0 / flushed(x), FP_UNIT_INVERSE); }
inline float unit_exp2_any(float x) {
  const float root = unit_exp2(x < -126 ? x * 0.5f : x);
  return x < -126 ? root * root : root;
}
inline float unit_rsqrt(float x) { return off_by(1.0 / __builtin_sqrt(x), FP_UNIT_RSQRT); }
inline float saturated_fma(float a, float b, float c) {
  const float r = __builtin_fmaf(a, b, c);
  return r > 0 ? r < 1 ? r : 1.0f : 0.0f;
}
}  // namespace core
