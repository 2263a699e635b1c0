// erf and erfc.
#pragma once
namespace core {
VEC_POLY(erfc_shape, ERFC)

// erfc of a >= 0: e^(-a^2) q((a - 4) / (a + 4)) / (1 + 2 a), the square with what its rounding left.
template <class R> VDEV R erfc_right(R x) {
  const R a = within(x, 0, F32<R> ? 11 : 28);
  const R h = a * a, l = fma(a, a, -h), e = exp_up(-h, 0);
  const R q = erfc_shape((a - num<R>(4)) / (a + num<R>(4))) / fma(a, all<R>(2), all<R>(1));
  return e * fma(q, -l, q);
}
template <class R> VDEV R erfc(R x) {
  const R r = erfc_right(float_abs(x));
  return x < num<R>(0) ? num<R>(2) - r : r;
}
template <class R> VDEV R erf(R x) {
  if constexpr (HAS_UNIT<R>) {  // x + x p(x^2), or 1 - 2^-p(|x|), whose highest power is above 0: 1 for large x without a test
    const R a = float_abs(x), far = num<R>(1) - unit_exp2(-poly(a, ERF_FAR_F32));
    const R s = x * x, near = fma(poly(s, ERF_NEAR_F32), x, x);
    return signed_as(a < num<R>(0.9) ? near : far, x);
  } else if constexpr (F32<R>) {  // 1 - e^-z, z = -ln(1 - erf a): e^-z - 1 where it is small, so nothing cancels
    const R a = at_most(float_abs(x), 4), z = fma(a, poly(a, ERF_LOG_F32), a);
    const R t = fma(z, -log2_e<R>(), fill<R>(ROUNDER<R>)), j = t - ROUNDER<R>;
    const R r = fma(j, -ln2_hi<R>(), -z), p = expm1_of_small(r);  // what ln2_lo would add is far below q's share of 1 - q
    R q;  // 2^j
    if constexpr (HAS_SCALE<R>) q = scaled(all<R>(1), j);
    else q = power_of_2<R>(rounder_int(t));
    return signed_as(fma(p, q, q - num<R>(1)), x);
  } else {
    const R a = float_abs(x), b = within(a, 0, 6), s = a * a;
    const R near = fma(poly(s, ERF_F64), a, a), far = num<R>(1) - erfc_right(b);
    return with_sign(a < num<R>(1) ? near : far, sign_of(x));
  }
}
}  // namespace core
