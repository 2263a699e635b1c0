// Inexact operations as far off as their rows allow: vec_math.h includes this before it lists them, in builds of
// tests.support.perturbed, which states PERTURB_SEED and ULPS_exp_, ... by the rows.
#pragma once
namespace perturbed {
// From -1 to 1, by the bits of a result: anything where the seed is odd; else one end, the same for all or by the bits.
VDEV double draw(uint64_t u) {
  u = (u ^ (uint64_t)PERTURB_SEED) * 0x9e3779b97f4a7c15ull;
  u = (u ^ u >> 32) * 0xd6e8feb86659fd93ull;
  u ^= u >> 32;
  if (PERTURB_SEED % 2) return (double)(int64_t)(u >> 11) * 0x1p-52 - 1;
  return PERTURB_SEED % 4 ? (u & 1 ? 1.0 : -1.0) : PERTURB_SEED % 8 ? 1.0 : -1.0;
}
template <class S> VDEV double last_place(S x) {  // of a finite number
  const auto e = core::as<Uint<sizeof(S)>>(x) & core::INFINITY_BITS<S>;
  const S least = core::as<S>((Uint<sizeof(S)>)1);
  return e ? (double)core::as<S>(e) * (sizeof(S) == 8 ? 0x1p-52 : 0x1p-23) : (double)least;
}
template <class S> VDEV bool stays(S x) { return x == 0 || !(x - x == 0); }  // 0, infinite, NaN
// The float beside a value that f64 has as good as exactly: within so many places of it, rounding included.
VDEV float off(double exact, double ulps) {
  const float near = (float)exact;
  ulps -= 1e-6;  // what f64 is off by itself
  if (stays(near)) return near;
  const double place = last_place(near), by = draw(core::as<uint32_t>(near)) * (ulps - 0.5) * place;
  const float far = (float)(exact + by);
  const double apart = (double)far - exact;
  return stays(far) || (far > 0) != (near > 0) || apart > ulps * place || -apart > ulps * place ? near : far;
}
// f64's own functions take up to 7/8 of what is stated (`python -m benchmarks.vec_accuracy`): the rest is left.
VDEV double off_wide(double made, double ulps) {
  if (stays(made)) return made;
  const double far = made + draw(core::as<uint64_t>(made)) * (ulps / 8) * last_place(made);
  return stays(far) || (far > 0) != (made > 0) ? made : far;
}
}  // namespace perturbed
// Lane by lane: f32 by way of f64.
#define PERTURBED_LANES(op, ulps, ...) \
  Vec<T, W> r{}; \
  for (int l = 0; l < W; l++) { \
    const double y = op(__VA_ARGS__); \
    if constexpr (sizeof(T) == 4) set(r, l, perturbed::off(y, ulps)); else set(r, l, (T)perturbed::off_wide(y, ulps)); \
  } \
  return r;
#undef VEC_MATH1
#undef VEC_MATH2
#define VEC_MATH1(name, op) template <class T, int W> VDEV Vec<T, W> name(const Vec<T, W>& a) { \
  PERTURBED_LANES(op, ULPS_##name, (double)get(a, l)) }
#define VEC_MATH2(name, op) template <class T, int W> VDEV Vec<T, W> name(const Vec<T, W>& a, const Vec<T, W>& b) { \
  PERTURBED_LANES(op, ULPS_##name, (double)get(a, l), (double)get(b, l)) }
