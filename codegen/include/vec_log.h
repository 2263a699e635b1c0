// Logarithms and what follows from them: log, log2, log10, log1p, asinh, acosh, atanh.
#pragma once
namespace core {
VEC_POLY(atanh_tail, ATANH)
VEC_CONSTANT(log10_2_hi, LOG10_2_HI)
VEC_CONSTANT(log10_2_lo, LOG10_2_LO)
VEC_CONSTANT(log2_e_lo, LOG2_E_LO)
VEC_CONSTANT(log10_e, LOG10_E_HI)
VEC_CONSTANT(log10_e_lo, LOG10_E_LO)

// u = 2^e (1 + f) with 2/3 <= 1 + f < 4/3, for positive u, denormals included.
template <class R> VDEV R log_reduce(R u, R& e) {
  using I = IntLike<R>;
  using U = UintLike<R>;
  using S = Element<R>;
  constexpr int M = MANTISSA<S>;
  constexpr auto least = (Element<I>)1 << M;
  constexpr auto two_thirds = (Element<U>)(F32<R> ? 0x3f2aaaab : 0x3fe5555555555555);
  const auto denormal = as<I>(u) < least;
  const U i = as<U>(denormal ? u * as<S>((Element<I>)(BIAS<S> + M + 1) << M) : u) - two_thirds;
  const I n = as<I>(i) >> M;
  e = convert<S>(denormal ? n - (Element<I>)(M + 1) : n);
  return as<R>(i - (as<U>(n) << M) + two_thirds) - num<R>(1);
}
// ln(1 + f) = f + tail
template <class R> VDEV R log_tail(R f) {
  if constexpr (F32<R>) return fma(poly(f, LOG_F32), f, all<R>(-0.5)) * (f * f);
  else {
    const R s = f / (f + num<R>(2)), z = s * s;
    return -s * fma(num<R>(-2) * z, atanh_tail(z), f);
  }
}
// What logarithms give where their argument is zero, negative, infinite or NaN.
template <class R> VDEV R log_special(R x, R y) {
  const R nan = not_a_number<R>();
  y = x < infinity<R>() ? y : x;
  y = x == num<R>(0) ? -infinity<R>() : y;
  return ((x < num<R>(0)) | (x != x)) ? nan : y;
}
// ln(u + c) + up ln 2, |c| below an ulp of u.
template <class R> VDEV R log_sum(R u, R c, R up) {
  R e;
  const R f = log_reduce(u, e), tail = log_tail(f) + c / u;
  e = e + up;
  return fma(e, ln2_hi<R>(), f + fma(e, ln2_lo<R>(), tail));
}
template <class R> VDEV R log(R x) {
  R e;
  const R f = log_reduce(x, e);
  return log_special(x, fma(e, ln2_hi<R>(), f + fma(e, ln2_lo<R>(), log_tail(f))));
}
template <class R> VDEV R log2(R x) {
  R e;
  const R f = log_reduce(x, e), tail = log_tail(f);
  return log_special(x, e + fma(f, log2_e<R>(), fma(f, log2_e_lo<R>(), tail * log2_e<R>())));
}
template <class R> VDEV R log10(R x) {
  R e;
  const R f = log_reduce(x, e), tail = log_tail(f);
  const R y = fma(f, log10_e<R>(), fma(f, log10_e_lo<R>(), tail * log10_e<R>()));
  return log_special(x, fma(e, log10_2_hi<R>(), fma(e, log10_2_lo<R>(), y)));
}
// a + b rounded, and what the rounding left (Knuth's two-sum).
template <class R> VDEV R two_sum(R a, R b, R& left) {
  const R s = a + b, v = s - a;
  left = (a - (s - v)) + (b - v);
  return s;
}
template <class R> VDEV R log1p(R x) {
  R c;
  const R u = two_sum(all<R>(1), x, c);
  const R y = log_special(u, log_sum(u, c, R{}));
  return is_tiny(x) ? x : y;
}
// For x beyond `large` squares overflow, and ln(2 x) is the answer.
template <class R> VDEV auto is_large(R x) { return x > num<R>(F32<R> ? 0x1p14 : 0x1p30); }
// ln(1 + y), or ln(2 x) where x is large; x may be infinite.
template <class R> VDEV R log1p_or_log2x(R y, R x) {
  R c;
  const R u = two_sum(all<R>(1), y, c), none = R{};
  const auto large = is_large(x);
  const R r = log_sum(large ? x : u, large ? none : c, large ? all<R>(1) : none);
  return x == infinity<R>() ? x : r;
}
template <class R> VDEV R asinh(R x) {
  const R a = float_abs(x), one = all<R>(1), s = a * a;
  const R y = a + s / (one + sqrt(s + one));
  return is_tiny(x) ? x : with_sign(log1p_or_log2x(y, a), sign_of(x));
}
template <class R> VDEV R acosh(R x) {
  const R t = x - num<R>(1);
  const R y = log1p_or_log2x(t + sqrt(fma(t, t, t + t)), x);
  return ((x < num<R>(1)) | (x != x)) ? not_a_number<R>() : y;
}
template <class R> VDEV R atanh(R x) {
  const R a = float_abs(x), one = all<R>(1), y = (a + a) / (one - a);
  R c;
  const R u = two_sum(one, y, c);
  R r = num<R>(0.5) * log_sum(u, c, R{});
  r = a == one ? infinity<R>() : r;
  r = ((a > one) | (a != a)) ? not_a_number<R>() : with_sign(r, sign_of(x));
  return is_tiny(x) ? x : r;
}
}  // namespace core
