// What reductions need beyond the vocabulary of vec_*.h.
#pragma once
// argmax (MAX) or argmin: does x, met later, take the place of `best`? NaN wins once; ties stay with the earlier.
template <bool MAX, class T> VDEV bool arg_better(const Vec<T, 1>& x, const Vec<T, 1>& best) {
  const auto nan = logical_and_(ne_(x, x), eq_(best, best));
  const auto beyond = logical_and_(eq_(best, best), MAX ? gt_(x, best) : lt_(x, best));
  return get(logical_or_(nan, beyond), 0).u;
}
// All lanes combined by f, halves first.
template <class F, class T, int W> VDEV Vec<T, 1> join_lanes(F f, const Vec<T, W>& x) {
  if constexpr (W == 1) return x;
  else return join_lanes(f, f(low(x), high(x)));
}
// An extreme and where it was found: MOST<P> while nothing has beaten what it began with, the worst of all values.
template <class T, int W, class P> struct Best { Vec<T, W> value; Vec<P, W> at; };
template <class P, int W, class T> VDEV Best<T, W, P> none_yet(T worst) { return {splat<W>(worst), splat<W>(MOST<P>)}; }
// Lane by lane, where every position is beyond those before: NaN takes the place of numbers, equals stay.
template <bool MAX, class T, int W, class P>
VDEV Best<T, W, P> better_later(const Best<T, W, P>& a, const Vec<T, W>& x, const Vec<P, W>& at) {
  const auto stays = MAX ? ge_(a.value, x) : le_(a.value, x), number = eq_(a.value, a.value);
  return {where_(stays, a.value, where_(number, x, a.value)), where_(stays, a.at, where_(number, at, a.at))};
}
// Lane by lane, in any order: NaN before numbers, the lowest position among equals.
template <bool MAX, class T, int W, class P> VDEV Best<T, W, P> better(const Best<T, W, P>& a, const Best<T, W, P>& b) {
  const auto earlier = lt_(b.at, a.at), beyond = MAX ? gt_(b.value, a.value) : lt_(b.value, a.value);
  const auto a_nan = ne_(a.value, a.value), b_nan = ne_(b.value, b.value);
  const auto number = logical_or_(logical_or_(beyond, b_nan), logical_and_(eq_(b.value, a.value), earlier));
  const auto take = where_(a_nan, logical_and_(b_nan, earlier), number);
  return {where_(take, b.value, a.value), where_(take, b.at, a.at)};
}
template <bool MAX, class T, int W, class P> VDEV Best<T, 1, P> join_best(const Best<T, W, P>& x) {
  if constexpr (W == 1) return x;
  else return join_best<MAX>(better<MAX>(Best<T, W / 2, P>{low(x.value), low(x.at)}, Best<T, W / 2, P>{high(x.value), high(x.at)}));
}
// Where nothing has beaten it all values are the worst one: the first is at 0.
template <class T, int W, class P> VDEV Vec<P, W> position(const Best<T, W, P>& x) {
  return where_(eq_(x.at, splat<W>(MOST<P>)), splat<W>((P)0), x.at);
}
// The first n lanes of x, the others of y.
template <class T, int W> VDEV Vec<T, W> first_lanes(long n, const Vec<T, W>& x, const Vec<T, W>& y) {
  return where_(lt_(count<W>(), splat<W>((int64_t)n)), x, y);
}
template <class T, int W, class P> VDEV Best<T, W, P> first_lanes(long n, const Best<T, W, P>& x, const Best<T, W, P>& y) {
  return {first_lanes(n, x.value, y.value), first_lanes(n, x.at, y.at)};
}
// One more vector of scans side by side.
template <class F, class T, int W> VDEV Vec<T, W> scan_step(F f, Vec<T, W>& carry, const Vec<T, W>& x, bool first) {
  if (first) carry = x;
  else carry = f(carry, x);
  return carry;
}
