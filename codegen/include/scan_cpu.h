// Running sums on a CPU, along the lanes of vectors.
#pragma once
#ifdef VEC_SHUFFLES
namespace core {
template <int BY, class R, int... I> VDEV R moved_up(R x, R below, Indices<I...>) {
  return __builtin_shufflevector(below, x, (LANES<R> - BY + I)...);
}
template <class R, int... I> VDEV R last_everywhere(R x, Indices<I...>) {
  return __builtin_shufflevector(x, x, ((void)I, LANES<R> - 1)...);
}
}  // namespace core
#endif
template <class T, int W> VDEV Vec<T, 1> last_lane(const Vec<T, W>& x) {
  if constexpr (W == 1) return x;
  else return last_lane(high(x));
}
template <class T, int W> VDEV Vec<T, W> last_lanes(const Vec<T, W>& x) {  // the last one in all lanes
#ifdef VEC_SHUFFLES
  if constexpr (W > 1 && !WIDE<W, T>) return {core::last_everywhere(x.v, core::FirstIndices<W>{})};
#endif
  return splat<W>(last_lane(x));
}
// Lane l of a register combined with all lanes before it, in steps of 1, 2, 4 ... lanes. none: what f leaves as it is.
template <int BY = 1, class F, class T, int W> VDEV Vec<T, W> prefix_lanes(F f, const Vec<T, W>& x, const Vec<T, W>& none) {
  if constexpr (BY >= W) return x;
#ifdef VEC_SHUFFLES
  else return prefix_lanes<2 * BY>(f, f(Vec<T, W>{core::moved_up<BY>(x.v, none.v, core::FirstIndices<W>{})}, x), none);
#else
  else {
    const auto first = prefix_lanes(f, low(x), low(none));
    return join(first, f(splat<W / 2>(last_lane(first)), prefix_lanes(f, high(x), high(none))));
  }
#endif
}
// What a scan along lanes has come to, in all lanes of a register, so that one f leads from vector to vector.
template <class T, int W> struct Carry { Vec<T, W> total, none; };
template <int W, class T> VDEV auto no_carry(T none) {
  constexpr int C = W < REGISTER<T> ? W : REGISTER<T>;
  return Carry<T, C>{splat<C>(none), splat<C>(none)};
}
// One more vector of a scan along lanes.
template <class F, class T, int C, int W> VDEV Vec<T, W> scan_lanes(F f, Carry<T, C>& carry, const Vec<T, W>& x) {
  if constexpr (W > C) {
    const auto first = scan_lanes(f, carry, low(x));
    return join(first, scan_lanes(f, carry, high(x)));
  } else {
    const auto own = prefix_lanes(f, x, carry.none), before = carry.total;
    carry.total = f(before, last_lanes(own));
    return f(before, own);
  }
}
