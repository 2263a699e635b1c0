// asin, acos, atan, atan2.
#pragma once
namespace core {
VEC_POLY(asin_tail, ASIN)
VEC_POLY(atan_tail, ATAN)

// |x| <= 1/2: asin x = x + x^3 p(x^2). Beyond: pi/2 - 2 asin sqrt((1 - |x|) / 2).
template <class R> VDEV R arc_reduce(R a, R& half) {
  const auto large = a > num<R>(0.5);
  const R s = large ? fma(a, all<R>(-0.5), all<R>(0.5)) : a * a;
  half = large ? sqrt(s) : a;
  return asin_tail(s) * s;
}
template <class R> VDEV R asin(R x) {
  R b;
  const R a = float_abs(x), p = arc_reduce(a, b), y = fma(p, b, b);
  const R far = half_pi_hi<R>() - fma(num<R>(2) * b, p, fma(b, all<R>(2), -half_pi_mid<R>()));
  const R r = a > num<R>(0.5) ? far : y;
  return signed_as(r, x);
}
template <class R> VDEV R acos(R x) {
  R b;
  const R a = float_abs(x), p = arc_reduce(a, b);
  const auto minus = x < num<R>(0);
  const R y = fma(p, b, b), twice = y + y;
  const R far = minus ? num<R>(2) * half_pi_hi<R>() - (twice - num<R>(2) * half_pi_mid<R>()) : twice;
  const R c = minus ? -b : b;
  const R near = half_pi_hi<R>() - (c - fma(-p, c, half_pi_mid<R>()));
  return a > num<R>(0.5) ? far : near;
}
// The angle of (x, y), both finite and not negative, not both 0: turned by 0, pi/4 or pi/2 so that the tangent is small.
template <class R> VDEV R arc_angle(R y, R x) {
  const auto steep = y > num<R>(2.414213562373095) * x, middle = y > num<R>(0.4142135623730950) * x;
  const R n = steep ? -x : middle ? y - x : y, d = steep ? y : middle ? y + x : x;
  const R t = n / d, s = t * t, tail = atan_tail(s) * (t * s);
  const R k = steep ? all<R>(1) : middle ? all<R>(0.5) : R{};
  return fma(k, half_pi_hi<R>(), t + fma(k, half_pi_mid<R>(), tail));
}
template <class R> VDEV R atan(R x) {
  const R a = float_abs(x), b = a < infinity<R>() ? a : all<R>(F32<R> ? 0x1p30 : 0x1p60);
  const R y = arc_angle(b, all<R>(1));
  return x != x ? x : with_sign(y, sign_of(x));
}
template <class R> VDEV R atan2(R y, R x) {
  const R one = all<R>(1), zero = R{}, inf = infinity<R>();
  R a = float_abs(y), b = float_abs(x);
  const auto both_large = (a == inf) & (b == inf), origin = (a == zero) & (b == zero);
  a = both_large ? one : a;
  b = (both_large | origin) ? one : b;
  // Sums must not overflow, and comparisons not meet denormals: where both are small or one is large, both are scaled;
  // what becomes denormal by that is nothing beside the other one.
  const auto most = num<R>(F32<R> ? 0x1p100 : 0x1p1000), least = num<R>(F32<R> ? 0x1p-90 : 0x1p-900);
  const R up = ((a < least) & (b < least)) ? all<R>(0x1p64) : one;
  const R factor = ((a > most) | (b > most)) ? all<R>(0x1p-30) : up;
  a = a < inf ? a * factor : a;
  b = b < inf ? b * factor : b;
  R r = a == inf ? half_pi_hi<R>() + half_pi_mid<R>() : b == inf ? zero : arc_angle(a, b);
  const R left = num<R>(2) * half_pi_hi<R>() - (r - num<R>(2) * half_pi_mid<R>());
  r = sign_of(x) != 0 ? left : r;
  return ((x != x) | (y != y)) ? not_a_number<R>() : with_sign(r, sign_of(y));
}
}  // namespace core
