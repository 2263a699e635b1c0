// pow with C's special cases: e^(y ln x) with the logarithm as a sum of two numbers.
#pragma once
namespace core {
VEC_POLY(pow_tail, POW)
VEC_CONSTANT(third_hi, THIRD_HI)
VEC_CONSTANT(third_lo, THIRD_LO)

// hi + lo, |lo| within half an ulp of hi.
template <class R> struct Pair { R hi, lo; };
template <class R> VDEV Pair<R> settle(R a, R b) { const R s = a + b; return {s, b - (s - a)}; }  // |a| >= |b|
template <class R> VDEV Pair<R> times(Pair<R> a, Pair<R> b) {
  const R p = a.hi * b.hi;
  return settle(p, fma(a.hi, b.hi, -p) + fma(a.hi, b.lo, a.lo * b.hi));
}
// log2 of positive x.
template <class R> VDEV Pair<R> log2_pair(R x) {
  R e, d_lo;
  const R f = log_reduce(x, e), d = two_sum(f, all<R>(2), d_lo);
  // s = f / (2 + f); ln(1 + f) = 2 (s + s^3 (1/3 + s^2 t(s^2)))
  const R s_hi = f / d, s_lo = fma(-s_hi, d_lo, fma(-s_hi, d, f)) / d;
  const Pair<R> s = settle(s_hi, s_lo), z = times(s, s);
  const Pair<R> third = settle(third_hi<R>(), fma(z.hi, pow_tail(z.hi), third_lo<R>()));
  const Pair<R> tail = times(s, times(z, third)), half = settle(s.hi, tail.hi);
  const Pair<R> ln = settle(half.hi, half.lo + (s.lo + tail.lo));
  const R two = all<R>(2);
  const Pair<R> log = times(Pair<R>{two * ln.hi, two * ln.lo}, Pair<R>{log2_e<R>(), log2_e_lo<R>()});
  const Pair<R> sum = settle(e, log.hi);
  const auto whole = e != num<R>(0);
  return settle(whole ? sum.hi : log.hi, whole ? sum.lo + log.lo : log.lo);
}
// 2^(hi + lo)
template <class R> VDEV R exp2_pair(Pair<R> p) {
  const R c = F32<R> ? within(p.hi, -160, 160) : within(p.hi, -1100, 1100);
  const R t = c + ROUNDER<R>, j = t - ROUNDER<R>, f = (c - j) + (c == p.hi ? p.lo : R{});
  return scale(exp_of_small(fma(f, ln2_hi<R>(), f * ln2_lo<R>())), rounder_int(t));
}
template <class R> VDEV R pow(R x, R y) {
  const R a = float_abs(x), one = all<R>(1), zero = R{}, inf = infinity<R>();
  const Pair<R> log = log2_pair(a);
  // Beyond 2^14 an exponent decides between 0, 1 and infinity by its sign alone, and products must not overflow.
  const R b = within(y, F32<R> ? -0x1p40 : -0x1p70, F32<R> ? 0x1p40 : 0x1p70);
  const R p = b * log.hi;
  R r = exp2_pair(settle(p, fma(b, log.hi, -p) + b * log.lo));
  const auto grows = (a > one) == (y > zero);
  r = ((a == zero) | (a == inf) | (float_abs(y) == inf)) ? (grows ? inf : zero) : r;
  const R h = num<R>(0.5) * y;
  const auto whole = floor(y) == y;
  const auto odd = whole & (floor(h) != h);
  const auto minus = sign_of(x) != 0;
  r = (minus & odd) ? -r : r;
  const auto bad = minus & (whole == 0) & (a != zero) & (a != inf);
  r = (bad | (x != x) | (y != y)) ? not_a_number<R>() : r;
  return ((x == one) | (y == zero) | ((x == -one) & (float_abs(y) == inf))) ? one : r;
}
}  // namespace core
