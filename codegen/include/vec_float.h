// Exact operations on float and double, over the registers of either target.
#pragma once
namespace core {
template <class R> constexpr bool FLOAT = FLOATING<Element<R>>;
// A constant of the lanes' type.
template <class R> VDEV constexpr Element<R> num(double x) { return (Element<R>)x; }
template <class R> constexpr Uint<sizeof(Element<R>)> SIGN = (Uint<sizeof(Element<R>)>)1 << (BITS<Element<R>> - 1);
template <class R> constexpr Uint<sizeof(Element<R>)> INFINITY_BITS =
    (Uint<sizeof(Element<R>)>)(2 * BIAS<Element<R>> + 1) << MANTISSA<Element<R>>;
template <class R> VDEV R not_a_number() {
  return fill<R>(as<Element<R>>((Uint<sizeof(Element<R>)>)(INFINITY_BITS<R> | INFINITY_BITS<R> >> 1)));
}
template <class R> VDEV R infinity() { return fill<R>(as<Element<R>>(INFINITY_BITS<R>)); }

template <class R> VDEV UintLike<R> sign_of(R x) { return as<UintLike<R>>(x) & SIGN<R>; }
template <class R> VDEV UintLike<R> magnitude_of(R x) { return as<UintLike<R>>(x) & (Element<UintLike<R>>)~SIGN<R>; }
// |x| must have its sign bit clear.
template <class R> VDEV R with_sign(R magnitude, UintLike<R> sign) { return as<R>(as<UintLike<R>>(magnitude) | sign); }
#ifndef VEC_CUDA
template <class R> VDEV R float_abs(R x) { return as<R>(magnitude_of(x)); }
template <class R> VDEV R signed_as(R x, R y) {  // |x| with the sign of y
#if defined(VEC_AVX512) && __has_builtin(__builtin_ia32_pternlogd512_mask)
  if constexpr (IS<float, 16, R>) {  // one choice of bits, for which g++ takes three instructions
    const auto mask = fill<Reg<int, 16>>((int)~SIGN<R>);
    return as<R>(__builtin_ia32_pternlogd512_mask(mask, as<Reg<int, 16>>(x), as<Reg<int, 16>>(y), 0xca, (unsigned short)-1));
  }
#endif
  return with_sign(float_abs(x), sign_of(y));
}
#endif

// Adding and taking away 2^mantissa leaves the nearest integer.
template <class R> VDEV R round(R x) {
  const auto big = num<R>(sizeof(Element<R>) == 8 ? 4503599627370496.0 : 8388608.0);
  const R a = float_abs(x), t = (a + big) - big;
  return with_sign(a < big ? t : a, sign_of(x));
}
template <class R> VDEV R floor(R x) { const R t = round(x); return t > x ? t - num<R>(1) : t; }
template <class R> VDEV R ceil(R x) {
  const R t = round(x), r = t < x ? t + num<R>(1) : t;
  return signed_as(r, x);
}
template <class R> VDEV R trunc(R x) { return with_sign(floor(float_abs(x)), sign_of(x)); }

// fmod of one lane by long division of the mantissas, for any quotient.
template <class S> VCOLD S fmod_far(S x, S y) {
  using U = Uint<sizeof(S)>;
  constexpr int M = MANTISSA<S>, STEP = 63 - M;
  const U ux = magnitude_of(x), uy = magnitude_of(y);
  if (ux >= INFINITY_BITS<S> || uy > INFINITY_BITS<S> || uy == 0) return not_a_number<S>();
  if (ux < uy) return x;
  int ex = (int)(ux >> M), ey = (int)(uy >> M);
  uint64_t mx = ux & (((U)1 << M) - 1), my = uy & (((U)1 << M) - 1);
  if (ex) mx |= (uint64_t)1 << M; else ex = 1;
  if (ey) my |= (uint64_t)1 << M; else ey = 1;
  mx %= my;
  for (int left = ex - ey; left > 0 && mx; left -= STEP) mx = (mx << (left < STEP ? left : STEP)) % my;
  if (!mx) return as<S>(sign_of(x));
  int e = ey;
  while (e > 1 && !(mx >> M)) { mx <<= 1; e--; }
  const U u = mx >> M ? (U)(mx & (((U)1 << M) - 1)) | (U)e << M : (U)mx;
  return as<S>((U)(u | sign_of(x)));
}
template <class R> VCOLD_LANES R fmod_lanes(R x, R y, R r, R quotient, Element<R> limit) {
  for (int l = 0; l < LANES<R>; l++) if (!(lane(quotient, l) < limit)) set_lane(r, l, fmod_far(lane(x, l), lane(y, l)));
  return r;
}
// Where the quotient is small, a - q b by fma is exact for the rounded quotient q or its neighbour.
template <class R> VDEV R fmod(R x, R y) {
  const auto limit = num<R>(sizeof(Element<R>) == 8 ? 2251799813685248.0 : 4194304.0);
  const R a = float_abs(x), b = float_abs(y), q = a / b;
  R r = fma(-floor(q), b, a);
  r = r < num<R>(0) ? r + b : r;
  r = a < b ? x : signed_as(r, x);
  if (__builtin_expect(any((q < limit) == 0), 0)) return fmod_lanes(x, y, r, q, limit);
  return r;
}
template <class R> VDEV R remainder(R x, R y) {
  const R r = fmod(x, y);
  return ((r != num<R>(0)) & (sign_of(r) != sign_of(y))) ? r + y : r;
}

template <class R> VDEV R negate(R x) {
  if constexpr (FLOAT<R>) return -x;
  else return wrap_sub(R{}, x);
}
template <class R> VDEV R absolute(R x) {
  if constexpr (FLOAT<R>) return float_abs(x);
  else if constexpr (UNSIGNED<Element<R>>) return x;
  else return x < (Element<R>)0 ? negate(x) : x;
}
template <class R> VDEV R add(R a, R b) { if constexpr (FLOAT<R>) return a + b; else return wrap_add(a, b); }
template <class R> VDEV R sub(R a, R b) { if constexpr (FLOAT<R>) return a - b; else return wrap_sub(a, b); }
template <class R> VDEV R mul(R a, R b) { if constexpr (FLOAT<R>) return a * b; else return wrap_mul(a, b); }
template <class R> VDEV R div(R a, R b) { if constexpr (FLOAT<R>) return a / b; else return quotient(a, b); }
template <class R> VDEV R square(R a) { return mul(a, a); }
template <class R> VDEV R reciprocal(R a) { return num<R>(1) / a; }
// a / b alone may be rounded up to an integer: what fmod leaves says how many times b fits.
template <class R> VDEV R floor_of_quotient(R a, R b) {
  const R zero = R{}, rest = fmod(a, b), quotient = a / b;
  R whole = (a - rest) / b;
  whole = ((rest != zero) & ((rest < zero) != (b < zero))) ? whole - num<R>(1) : whole;
  const R low = floor(whole), nearest = whole - low > num<R>(0.5) ? low + num<R>(1) : low;
  return b == zero ? quotient : whole == zero ? with_sign(zero, sign_of(quotient)) : nearest;
}
template <class R> VDEV R floordiv(R a, R b) {
  if constexpr (FLOAT<R>) return floor_of_quotient(a, b); else return floor_quotient(a, b);
}
template <class R> VDEV R any_fmod(R a, R b) { if constexpr (FLOAT<R>) return fmod(a, b); else return rest(a, b); }
template <class R> VDEV R any_remainder(R a, R b) { if constexpr (FLOAT<R>) return remainder(a, b); else return floor_rest(a, b); }
template <class R> VDEV R relu(R x) { return x <= (Element<R>)0 ? R{} : x; }
template <class R> VDEV R sign(R x) {
  using S = Element<R>;
  const R one = fill<R>((S)1);
  if constexpr (UNSIGNED<S>) return x == (S)0 ? x : one;
  else {
    return x > (S)0 ? one : x < (S)0 ? fill<R>((S)-1) : R{};
  }
}
// Equal operands differ in the sign of zero at most: their bits together.
template <class R> VDEV R maximum(R a, R b) {
  if constexpr (HAS_EXTREME<R>) return extreme_or_nan<true>(a, b);
  else if constexpr (HAS_SCALE<R>) return ((a == a) & (b == b)) ? extreme<true>(a, b) : a + b;
  else if constexpr (FLOAT<R>) {
    using U = UintLike<R>;
    const R r = ((a > b) | (a != a)) ? a : b;
    return a == b ? as<R>((U)(as<U>(a) & as<U>(b))) : r;
  } else return a > b ? a : b;
}
template <class R> VDEV R minimum(R a, R b) {
  if constexpr (HAS_EXTREME<R>) return extreme_or_nan<false>(a, b);
  else if constexpr (HAS_SCALE<R>) return ((a == a) & (b == b)) ? extreme<false>(a, b) : a + b;
  else if constexpr (FLOAT<R>) {
    using U = UintLike<R>;
    const R r = ((a < b) | (a != a)) ? a : b;
    return a == b ? as<R>((U)(as<U>(a) | as<U>(b))) : r;
  } else return a < b ? a : b;
}
template <class R> VDEV R clamp(R x, R lo, R hi) { return minimum(maximum(x, lo), hi); }
template <class R> VDEV R lerp(R a, R b, R w) {
  const auto one = num<R>(1);
  return float_abs(w) < num<R>(0.5) ? a + w * (b - a) : b - (b - a) * (one - w);
}

template <class R> VDEV auto eq(R a, R b) { return a == b; }
template <class R> VDEV auto ne(R a, R b) { return a != b; }
template <class R> VDEV auto lt(R a, R b) { return a < b; }
template <class R> VDEV auto le(R a, R b) { return a <= b; }
template <class R> VDEV auto gt(R a, R b) { return a > b; }
template <class R> VDEV auto ge(R a, R b) { return a >= b; }
template <class R> VDEV auto isnan(R x) { return x != x; }
template <class R> VDEV auto isfinite(R x) { return magnitude_of(x) < INFINITY_BITS<R>; }
template <class R> VDEV auto isinf(R x) { return magnitude_of(x) == INFINITY_BITS<R>; }
template <class R> VDEV auto isposinf(R x) { return as<UintLike<R>>(x) == INFINITY_BITS<R>; }
template <class R> VDEV auto isneginf(R x) { return as<UintLike<R>>(x) == (INFINITY_BITS<R> | SIGN<R>); }
// Not of NaN, whose sign depends on the machine that made it.
template <class R> VDEV auto signbit(R x) { return (as<IntLike<R>>(x) < 0) & (x == x); }
}  // namespace core
