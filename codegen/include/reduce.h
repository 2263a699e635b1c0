// What reductions need beyond the vocabulary of vec_*.h.
#pragma once
// argmax (MAX) or argmin: does x, met later, take the place of `best`? NaN wins once; ties stay with the earlier.
template <bool MAX, class T> VDEV bool arg_better(const Vec<T, 1>& x, const Vec<T, 1>& best) {
  const auto nan = logical_and_(ne_(x, x), eq_(best, best));
  const auto beyond = logical_and_(eq_(best, best), MAX ? gt_(x, best) : lt_(x, best));
  return get(logical_or_(nan, beyond), 0).u;
}
