// sin, cos and tan of any finite magnitude.
#pragma once
namespace core {
VEC_POLY(sin_tail, SIN)
VEC_POLY(cos_tail, COS)
VEC_CONSTANT(two_over_pi, TWO_OVER_PI_HI)
VEC_CONSTANT(half_pi_hi, HALF_PI_HI)
VEC_CONSTANT(half_pi_mid, HALF_PI_MID)
VEC_CONSTANT(half_pi_lo, HALF_PI_LO)

VTABLE uint32_t TWO_OVER_PI_WORDS[] = {0, TWO_OVER_PI};
struct Quarters { double r; int q; };
// x = r + q pi/2 for one large x, after Payne and Hanek (1983): only the bits of 2/pi that matter modulo 4, in integers.
VCOLD Quarters trig_reduce_far(double x) {
  const uint64_t u = magnitude_of(x);
  if (u >= INFINITY_BITS<double>) return {not_a_number<double>(), 0};
  // x = m 2^e; v = 192 bits of 2/pi from the one that weighs 2 in 2^e 2/pi, so that m v / 2^192 = x 2/pi / 4 modulo 1.
  const uint64_t m = (u & 0xfffffffffffffull) | 0x10000000000000ull;
  const int start = (int)(u >> 52) - 1075 - 2 + 32, word = start >> 5, shift = start & 31;
  uint32_t f[6];  // most significant first
  uint64_t low = 0, high = 0;
  for (int i = 5; i >= 0; i--) {
    const uint64_t w = TWO_OVER_PI_WORDS[word + i];
    const uint32_t v = (uint32_t)((w << 32 | TWO_OVER_PI_WORDS[word + i + 1]) << shift >> 32);
    low += (m & 0xffffffffull) * v;
    const uint64_t s = (low & 0xffffffffull) + (high & 0xffffffffull);
    f[i] = (uint32_t)s;
    high = (high >> 32) + (m >> 32) * v + (s >> 32);
    low >>= 32;
  }
  uint64_t a = (uint64_t)f[0] << 32 | f[1], b = (uint64_t)f[2] << 32 | f[3], c = (uint64_t)f[4] << 32 | f[5];
  int q = (int)(a >> 62);
  const bool up = a >> 61 & 1;
  a = a << 2 | b >> 62;
  b = b << 2 | c >> 62;
  if (up) {  // the nearest quarter is the next one: the fraction less 1
    q++;
    b = ~b + 1;
    a = ~a + (b == 0);
  }
  int exponent = -64;
  while (!(a >> 63)) {
    a = a << 1 | b >> 63;
    b <<= 1;
    if (--exponent == -192) break;
  }
  const double hi = (double)(a >> 11), lo = (double)((a & 0x7ff) << 32 | b >> 32) * 0x1p-43;  // a = 2^11 (hi + lo)
  const double r = hi * HALF_PI_HI_F64;
  const double rest = fma(hi, HALF_PI_HI_F64, -r) + fma(hi, HALF_PI_MID_F64, lo * HALF_PI_HI_F64);
  const double y = (r + rest) * power_of_2<double>(exponent + 11);
  const bool minus = sign_of(x) != 0;
  return {minus != up ? -y : y, minus ? -q : q};
}
template <class R> struct Reduced { R r; IntLike<R> q; };
template <class R> VCOLD_LANES Reduced<R> trig_reduce_lanes(R x, R r, IntLike<R> q, Element<R> limit) {
  for (int l = 0; l < LANES<R>; l++) {
    const auto y = lane(x, l);
    if (float_abs(y) <= limit) continue;
    const Quarters far = trig_reduce_far((double)y);
    set_lane(r, l, (Element<R>)far.r);
    set_lane(q, l, (Element<IntLike<R>>)far.q);
  }
  return {r, q};
}
// x = r + q pi/2 with |r| <= pi/4, q modulo 4: pi/2 taken away in three parts by fma (Cody and Waite), the first exactly.
template <class R> VDEV Reduced<R> trig_reduce(R x) {
  const auto limit = num<R>(F32<R> ? 105615.0 : 134217728.0);
  const R t = fma(x, two_over_pi<R>(), fill<R>(ROUNDER<R>)), j = t - ROUNDER<R>;
  const R r = fma(j, -half_pi_lo<R>(), fma(j, -half_pi_mid<R>(), fma(j, -half_pi_hi<R>(), x)));
  const auto far = (float_abs(x) <= limit) == 0;
  if (__builtin_expect(any(far), 0)) return trig_reduce_lanes(x, r, as<IntLike<R>>(t), limit);
  return {r, as<IntLike<R>>(t)};
}
// The sign again, since -0 + 0 is 0.
template <class R> VDEV R sin_of_small(R r, R s) { return with_sign(fma(sin_tail(s), r * s, r), sign_of(r)); }
template <class R> VDEV R cos_of_small(R s) { return fma(fma(cos_tail(s), s, all<R>(-0.5)), s, all<R>(1)); }
template <class R> VDEV R sin_quarters(R x, int turn) {
  using I = IntLike<R>;
  const Reduced<R> x0 = trig_reduce(x);
  const R r = x0.r, s = r * r, c = cos_of_small(s), d = sin_of_small(r, s);
  const I q = x0.q + turn;
  const R y = (q & 1) != 0 ? c : d;
  return as<R>(as<I>(y) ^ ((q & 2) << (BITS<Element<R>> - 2)));
}
template <class R> VDEV R sin(R x) { return sin_quarters(x, 0); }
template <class R> VDEV R cos(R x) { return sin_quarters(x, 1); }
template <class R> VDEV R tan(R x) {
  const Reduced<R> x0 = trig_reduce(x);
  const R r = x0.r, s = r * r, c = cos_of_small(s), d = sin_of_small(r, s);
  const auto odd = (x0.q & 1) != 0;
  return (odd ? -c : d) / (odd ? d : c);
}
}  // namespace core
