// Integers: they wrap, nothing traps, and shifts of any width have a value.
#pragma once
namespace core {
template <class R> VDEV R wrap_add(R a, R b) { using U = WrapLike<R>; return (R)((U)a + (U)b); }
template <class R> VDEV R wrap_sub(R a, R b) { using U = WrapLike<R>; return (R)((U)a - (U)b); }
template <class R> VDEV R wrap_mul(R a, R b) { using U = WrapLike<R>; return (R)((U)a * (U)b); }
// The divisor with what would trap replaced by 1: x / 1 is right for MIN / -1, and 0 is settled by the caller.
template <class R> VDEV R safe_divisor(R a, R b) {
  using S = Element<R>;
  if constexpr (UNSIGNED<S>) return b == (S)0 ? fill<R>((S)1) : b;
  else return ((b == (S)0) | ((a == LEAST<S>) & (b == (S)-1))) ? fill<R>((S)1) : b;
}
template <class R> VDEV R quotient(R a, R b) { return b == (Element<R>)0 ? R{} : (R)(a / safe_divisor(a, b)); }
template <class R> VDEV R rest(R a, R b) { return b == (Element<R>)0 ? a : (R)(a % safe_divisor(a, b)); }
template <class R> VDEV R floor_quotient(R a, R b) {
  using S = Element<R>;
  const R s = safe_divisor(a, b), q = (R)(a / s);
  if constexpr (UNSIGNED<S>) return b == (S)0 ? R{} : q;
  else {
    const R r = (R)(a % s), down = wrap_sub(q, fill<R>((S)1));
    return b == (S)0 ? R{} : ((r != (S)0) & ((R)(r ^ s) < (S)0)) ? down : q;
  }
}
template <class R> VDEV R floor_rest(R a, R b) {
  using S = Element<R>;
  const R r = (R)(a % safe_divisor(a, b));
  if constexpr (UNSIGNED<S>) return b == (S)0 ? a : r;
  else return b == (S)0 ? a : ((r != (S)0) & ((R)(r ^ b) < (S)0)) ? wrap_add(r, b) : r;
}
// A shift count beyond the width, negative ones included, compares as large.
template <class R> VDEV R shift_left(R a, R b) {
  using U = UintLike<R>;
  using S = Element<U>;
  const U s = (U)b, in = s < (S)BITS<S> ? s : U{};
  return s < (S)BITS<S> ? (R)((WrapLike<R>)a << in) : R{};
}
template <class R> VDEV R shift_right_logical(R a, R b) {
  using U = UintLike<R>;
  using S = Element<U>;
  const U s = (U)b, in = s < (S)BITS<S> ? s : U{};
  return s < (S)BITS<S> ? (R)((U)a >> in) : R{};
}
template <class R> VDEV R shift_right(R a, R b) {
  using U = UintLike<R>;
  using S = Element<U>;
  if constexpr (UNSIGNED<Element<R>>) return shift_right_logical(a, b);
  else {
    const U s = (U)b;
    return (R)(a >> (R)(s < (S)BITS<S> ? s : fill<U>((S)(BITS<S> - 1))));
  }
}
template <class R> VDEV R bit_and(R a, R b) { return (R)(a & b); }
template <class R> VDEV R bit_or(R a, R b) { return (R)(a | b); }
template <class R> VDEV R bit_xor(R a, R b) { return (R)(a ^ b); }
template <class R> VDEV R bit_not(R a) {
  if constexpr (SAME<R, bool>) return !a;
  else return (R)~a;
}
}  // namespace core
