// Integers: they wrap, nothing traps, and shifts of any width have a value.
#pragma once
namespace core {
template <class R> VDEV R wrap_add(R a, R b) { using U = WrapLike<R>; return (R)((U)a + (U)b); }
template <class R> VDEV R wrap_sub(R a, R b) { using U = WrapLike<R>; return (R)((U)a - (U)b); }
// Vectors have no multiplication and no shifts by lane of 1 byte (nor, before AVX-512, shifts of 2): in wider lanes.
template <class R> constexpr bool NARROW_LANES = !SCALAR<R> && sizeof(Element<R>) <= 2;
template <class R> VDEV R wrap_mul(R a, R b) {
  using U = WrapLike<R>;
  if constexpr (!SCALAR<R> && sizeof(Element<R>) == 1) {
    return convert<Element<R>>(wrap_mul(convert<int16_t>(a), convert<int16_t>(b)));
  } else return (R)((U)a * (U)b);
}
// a / b for b that does not trap. Vectors have no such instruction: floats of more bits than a have the exact quotient on
// the right side of every integer.
template <class R> VDEV R divide(R a, R b) {
  using S = Element<R>;
  if constexpr (SCALAR<R> || sizeof(S) == 8) return (R)(a / b);
  else if constexpr (sizeof(S) == 4) return convert<S>(convert<double>(a) / convert<double>(b));
  else return convert<S>(convert<int32_t>(convert<float>(convert<int32_t>(a)) / convert<float>(convert<int32_t>(b))));
}
template <class R> VDEV R modulo(R a, R b) {
  if constexpr (SCALAR<R> || sizeof(Element<R>) == 8) return (R)(a % b);
  else return wrap_sub(a, wrap_mul(divide(a, b), b));
}
// The divisor with what would trap replaced by 1: x / 1 is right for MIN / -1, and 0 is settled by the caller.
template <class R> VDEV R safe_divisor(R a, R b) {
  using S = Element<R>;
  if constexpr (UNSIGNED<S>) return b == (S)0 ? fill<R>((S)1) : b;
  else return ((b == (S)0) | ((a == LEAST<S>) & (b == (S)-1))) ? fill<R>((S)1) : b;
}
template <class R> VDEV R quotient(R a, R b) { return b == (Element<R>)0 ? R{} : divide(a, safe_divisor(a, b)); }
template <class R> VDEV R rest(R a, R b) { return b == (Element<R>)0 ? a : modulo(a, safe_divisor(a, b)); }
template <class R> VDEV R floor_quotient(R a, R b) {
  using S = Element<R>;
  const R s = safe_divisor(a, b), q = divide(a, s);
  if constexpr (UNSIGNED<S>) return b == (S)0 ? R{} : q;
  else {
    const R r = wrap_sub(a, wrap_mul(q, s)), down = wrap_sub(q, fill<R>((S)1));
    return b == (S)0 ? R{} : ((r != (S)0) & ((R)(r ^ s) < (S)0)) ? down : q;
  }
}
template <class R> VDEV R floor_rest(R a, R b) {
  using S = Element<R>;
  const R r = modulo(a, safe_divisor(a, b));
  if constexpr (UNSIGNED<S>) return b == (S)0 ? a : r;
  else return b == (S)0 ? a : ((r != (S)0) & ((R)(r ^ b) < (S)0)) ? wrap_add(r, b) : r;
}
// A shift count beyond the width, negative ones included, compares as large.
template <class R> VDEV R shift_left(R a, R b) {
  using U = UintLike<R>;
  using S = Element<U>;
  const U s = (U)b;
  const auto inside = s < (S)BITS<S>;
  if constexpr (NARROW_LANES<R>) return inside ? convert<Element<R>>(convert<uint32_t>((U)a) << (convert<uint32_t>(s) & 31u)) : R{};
  else return inside ? (R)((WrapLike<R>)a << (inside ? s : U{})) : R{};
}
template <class R> VDEV R shift_right_logical(R a, R b) {
  using U = UintLike<R>;
  using S = Element<U>;
  const U s = (U)b;
  const auto inside = s < (S)BITS<S>;
  if constexpr (NARROW_LANES<R>) return inside ? convert<Element<R>>(convert<uint32_t>((U)a) >> (convert<uint32_t>(s) & 31u)) : R{};
  else return inside ? (R)((U)a >> (inside ? s : U{})) : R{};
}
template <class R> VDEV R shift_right(R a, R b) {
  using U = UintLike<R>;
  using S = Element<U>;
  if constexpr (UNSIGNED<Element<R>>) return shift_right_logical(a, b);
  else {
    const U s = (U)b, t = s < (S)BITS<S> ? s : fill<U>((S)(BITS<S> - 1));
    if constexpr (NARROW_LANES<R>) return convert<Element<R>>(convert<int32_t>(a) >> convert<int32_t>(t));
    else return (R)(a >> (R)t);
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
