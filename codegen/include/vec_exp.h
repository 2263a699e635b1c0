// Exponentials and what follows from them: exp, exp2, expm1, sigmoid, sinh, cosh, tanh.
#pragma once
namespace core {
template <class R> constexpr bool F32 = SAME<Element<R>, float>;
template <class R> VDEV R all(double x) { return fill<R>((Element<R>)x); }

// Polynomials by Horner's rule with fma, the coefficient of the highest power first.
template <class R> VDEV R horner(R, R p) { return p; }
template <class R, class... C> VDEV R horner(R x, R p, double c, C... rest) { return horner(x, fma(p, x, all<R>(c)), rest...); }
template <class R, class... C> VDEV R poly(R x, double c, C... rest) { return horner(x, all<R>(c), rest...); }
#define VEC_POLY(function, name) template <class R> VDEV R function(R x) { \
  if constexpr (F32<R>) return poly(x, name##_F32); else return poly(x, name##_F64); }
#define VEC_CONSTANT(function, name) template <class R> VDEV R function() { return all<R>(F32<R> ? name##_F32 : name##_F64); }

VEC_POLY(exp_tail, EXP)
VEC_CONSTANT(ln2_hi, LN2_HI)
VEC_CONSTANT(ln2_lo, LN2_LO)
VEC_CONSTANT(log2_e, LOG2_E_HI)

// x + magic - magic is the nearest integer, and the low bits of x + magic are that integer.
template <class R> constexpr Element<R> ROUNDER = (Element<R>)(F32<R> ? 12582912.0 : 6755399441055744.0);
template <class R> VDEV IntLike<R> rounder_int(R sum) {  // unsigned: the bits of a NaN must not overflow
  return as<IntLike<R>>(as<UintLike<R>>(sum) - as<Element<UintLike<R>>>(ROUNDER<R>));
}

// 2^n, n within the normal exponents.
template <class R> VDEV R power_of_2(IntLike<R> n) {
  using U = UintLike<R>;
  return as<R>((as<U>(n) + (Element<U>)BIAS<Element<R>>) << MANTISSA<Element<R>>);
}
// p 2^n for any n within twice that, in two steps, so that a denormal result is rounded once.
template <class R> VDEV R scale(R p, IntLike<R> n) {
  if constexpr (HAS_SCALE<R>) return scaled(p, convert<Element<R>>(n));
  const IntLike<R> h = n >> 1;
  return p * power_of_2<R>(h) * power_of_2<R>(n - h);
}
template <class R> VDEV R at_most(R x, double high) {  // a NaN passes
  const R hi = all<R>(high);
  if constexpr (HAS_SCALE<R>) return beyond<false>(hi, x);
  else return x > hi ? hi : x;
}
template <class R> VDEV R within(R x, double low, double high) {  // a NaN passes; no zero meets one of the other sign
  const R lo = all<R>(low), hi = all<R>(high);
  if constexpr (HAS_EXTREME<R>) return extreme_or_nan<false>(extreme_or_nan<true>(x, lo), hi);
  if constexpr (HAS_SCALE<R>) return beyond<false>(hi, beyond<true>(lo, x));
  const R y = x < lo ? lo : x;
  return y > hi ? hi : y;
}
// x = n ln 2 + r with |r| <= ln2 / 2.
template <class R> VDEV R exp_reduce(R x, IntLike<R>& n) {
  const R t = fma(x, log2_e<R>(), fill<R>(ROUNDER<R>)), j = t - ROUNDER<R>;
  n = rounder_int(t);
  return fma(j, -ln2_lo<R>(), fma(j, -ln2_hi<R>(), x));
}
template <class R> VDEV R exp_of_small(R r) { const R one = all<R>(1); return fma(fma(exp_tail(r), r, one), r, one); }
template <class R> VDEV R expm1_of_small(R r) { return fma(exp_tail(r), r * r, r); }

// e^x 2^up, up <= 0
template <class R> VDEV R exp_up(R x, int up) {
  if constexpr (HAS_SCALE<R>) {
    const R c = at_most(x, F32<R> ? 110 : 760), t = fma(c, log2_e<R>(), fill<R>(ROUNDER<R>)), j = t - ROUNDER<R>;
    const R p = exp_of_small(fma(j, -ln2_lo<R>(), fma(j, -ln2_hi<R>(), c)));
    return scaled_from(p, up ? j + (Element<R>)up : j, x, all<R>(F32<R> ? -104 : -746));  // below, e^x is 0
  }
  IntLike<R> n;
  const R r = exp_reduce(F32<R> ? within(x, -110, 110) : within(x, -760, 760), n);
  return scale(exp_of_small(r), n + up);
}
// ---- float by the special function unit of a CUDA device (HAS_UNIT): 2^x, 1 / x and 1 / sqrt x in an instruction each,
// off by an ulp or so.
// tests/gpu/test_elementary.py tries every float.
//
// e^(SIGN x) = p 2^n, n the whole number from FIRST to LAST that is nearest to SIGN x log2 e; where that lies outside, p is as
// small or large as it has to be. Returns p, and 2^(n + UP) in `power`: p times that is rounded once, and is 0, a denormal,
// infinite or NaN where it should be, without a test.
template <int SIGN, int FIRST, int LAST, int UP, class R> VDEV R unit_exp(R x, R& power) {
  constexpr float L = SIGN * LOG2_E_HI_F32, L_LO = SIGN * LOG2_E_LO_F32, SPAN = LAST - FIRST;
  const R way = saturated_fma(x, L / SPAN, -FIRST / SPAN);  // 0 to 1, from FIRST to LAST; 0 of a NaN
  const R t = fma(way, SPAN, ROUNDER<R> + (FIRST + UP + BIAS<R>)), n = t - (ROUNDER<R> + (UP + BIAS<R>));
  power = as<R>(as<uint32_t>(t) << MANTISSA<R>);
  return unit_exp2(fma(x, L_LO, fma(x, L, -n)));
}
template <class R> VDEV R exp(R x) {
  if constexpr (HAS_UNIT<R>) {
    R power;
    const R p = unit_exp<1, -126, 127, 0>(x, power);
    return p * power;
  } else return exp_up(x, 0);
}
template <class R> VDEV R exp2(R x) {
  if constexpr (HAS_UNIT<R>) return unit_exp2_any(x);
  const R c = F32<R> ? within(x, -160, 160) : within(x, -1100, 1100);
  const R t = c + ROUNDER<R>, j = t - ROUNDER<R>, f = c - j;  // exact
  const R p = exp_of_small(fma(f, ln2_hi<R>(), f * ln2_lo<R>()));
  if constexpr (HAS_SCALE<R>) return scaled_from(p, j, x, all<R>(F32<R> ? -151 : -1076));  // below, 2^x is 0
  return scale(p, rounder_int(t));
}
// (e^x - 1) / 4, which neither overflows before 4 times it does nor cancels, for |x| above the denormals.
template <class R> VDEV R expm1_quarter(R x) {
  IntLike<R> n;
  const R p = expm1_of_small(exp_reduce(F32<R> ? within(x, -50, 89.5) : within(x, -80, 710.6), n));
  const R q = power_of_2<R>(n - 2);
  return fma(p, q, q - num<R>(0.25));
}
template <class R> VDEV auto is_tiny(R x) { return float_abs(x) < num<R>(F32<R> ? 0x1p-30 : 0x1p-60); }
template <class R> VDEV R expm1(R x) { return is_tiny(x) ? x : expm1_quarter(x) * num<R>(4); }
template <class R> VDEV R sigmoid(R x) {
  if constexpr (HAS_UNIT<R>) {  // 2^-24 and 2^-24 e^-x instead of 1 and e^-x: no overflow before the result is 0, no denormal
    R power;
    const R p = unit_exp<-1, -102, 150, -24>(x, power);
    return unit_inverse(fma(p, power, num<R>(0x1p-24))) * num<R>(0x1p-24);
  } else {
    const R e = exp(-float_abs(x)), one = all<R>(1);
    return (x < num<R>(0) ? e : one) / (one + e);
  }
}
template <class R> VDEV R sinh(R x) {
  const R q = expm1_quarter(float_abs(x));  // a = e^x - 1: (a + a / (a + 1)) / 2
  const R y = num<R>(2) * (q + q / fma(q, all<R>(4), all<R>(1)));
  return is_tiny(x) ? x : with_sign(y, sign_of(x));
}
template <class R> VDEV R cosh(R x) {
  const R h = exp_up(float_abs(x), -1);
  return h + num<R>(0.25) / h;
}
template <class R> VDEV R tanh(R x) {
  const R a = float_abs(x);
  if constexpr (HAS_UNIT<R>) {
    const R e = unit_exp2(a * num<R>(2 * LOG2_E_HI_F32)), far = fma(unit_inverse(e + num<R>(1)), num<R>(-2), num<R>(1));
    const R s = x * x, near = fma(poly(s, TANH_F32), x * s, x);
    return signed_as(a < num<R>(0.75) ? near : far, x);
  } else {
    const R t = expm1_quarter(within(a + a, 0, 80));
    return is_tiny(x) ? x : signed_as(t / (t + num<R>(0.5)), x);
  }
}
template <class R> VDEV R rsqrt(R x) {
  if constexpr (HAS_UNIT<R>) return unit_rsqrt(x);
  else return num<R>(1) / sqrt(x);
}
}  // namespace core
