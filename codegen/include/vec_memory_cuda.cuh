// Loads and stores on CUDA. One access moves min(16, A * sizeof(T)) bytes, A being how many elements are aligned together.
#pragma once
template <int B> struct AccessOf { using type = uint8_t; };
template <> struct AccessOf<2> { using type = uint16_t; };
template <> struct AccessOf<4> { using type = uint32_t; };
template <> struct AccessOf<8> { using type = uint2; };
template <> struct AccessOf<16> { using type = uint4; };
template <class T, int W, int A> struct Accesses {
  static constexpr int BYTES = W * (int)sizeof(T), TOGETHER = (A < W ? A : W) * (int)sizeof(T);
  static constexpr int EACH = TOGETHER < 16 ? TOGETHER : 16, N = BYTES / EACH;
  using type = typename AccessOf<EACH>::type;
};
// One element: what kernels say where each lane has an address of its own.
template <class T> VDEV T read(const T* p FP_AND_SITE) {
  FP_CHECK(p, sizeof(T), LOAD);
  return *p;
}
template <class T> VDEV void write(T* p, T x FP_AND_SITE) {
  FP_CHECK(p, sizeof(T), STORE);
  *p = x;
}
template <int W, int A, class T> VDEV Vec<T, W> load(const T* p FP_AND_SITE) {
  using X = Accesses<T, W, A>;
  static_assert(sizeof(Vec<T, W>) == X::BYTES, "lanes lie side by side");
  typename X::type t[X::N];
  VEC_UNROLL for (int i = 0; i < X::N; i++) FP_CHECK((const typename X::type*)p + i, X::EACH, LOAD);
  VEC_UNROLL for (int i = 0; i < X::N; i++) t[i] = ((const typename X::type*)p)[i];
  Vec<T, W> r;
  memcpy(&r, t, sizeof r);
  return r;
}
// A load that stays ahead of the barrier it stands before: one of the compiler's own moves behind it, to where its value is used.
template <int W, int A, class T> VDEV Vec<T, W> load_early(const T* p FP_AND_SITE) {
#if defined(__CUDA_ARCH__) && !defined(FP_EMULATE)
  if constexpr (Accesses<T, W, A>::EACH == 16) {
    constexpr int N = Accesses<T, W, A>::N;
    uint32_t t[4 * N];
    VEC_UNROLL for (int i = 0; i < N; i++)
      asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(t[4 * i]), "=r"(t[4 * i + 1]), "=r"(t[4 * i + 2]), "=r"(t[4 * i + 3])
                   : "l"(__cvta_generic_to_global((const uint4*)p + i)) : "memory");
    Vec<T, W> r;
    memcpy(&r, t, sizeof r);
    return r;
  }
#endif
  return load<W, A>(p FP_HERE);
}
template <int W, int A, class T> VDEV void store(T* p, const Vec<T, W>& x FP_AND_SITE) {
  using X = Accesses<T, W, A>;
  typename X::type t[X::N];
  memcpy(t, &x, sizeof x);
  VEC_UNROLL for (int i = 0; i < X::N; i++) FP_CHECK((typename X::type*)p + i, X::EACH, STORE);
  VEC_UNROLL for (int i = 0; i < X::N; i++) ((typename X::type*)p)[i] = t[i];
}
// Evicted first: not read again soon.
template <int W, int A, class T> VDEV void store_stream(T* p, const Vec<T, W>& x FP_AND_SITE) {
  using X = Accesses<T, W, A>;
  typename X::type t[X::N];
  memcpy(t, &x, sizeof x);
  VEC_UNROLL for (int i = 0; i < X::N; i++) FP_CHECK((typename X::type*)p + i, X::EACH, STORE);
  VEC_UNROLL for (int i = 0; i < X::N; i++) __stcs((typename X::type*)p + i, t[i]);
}
// The first n lanes only; n may be anything, but below W it is a multiple of M: so many elements are there together.
template <int W, int A, int M = 1, class T> VDEV Vec<T, W> load_masked(const T* p, long n FP_AND_SITE) {
  constexpr int EACH = Accesses<T, W, M>::EACH / (int)sizeof(T);
  if constexpr (M < A) if (n >= W) return load<W, A>(p FP_HERE);
  Vec<T, W> r;
  VEC_UNROLL for (int l = 0; l < W; l += EACH) {
    Vec<T, EACH> part{};
    if (l < n) part = load<EACH, EACH>(p + l FP_HERE);
    VEC_UNROLL for (int k = 0; k < EACH; k++) r.v[l + k] = part.v[k];
  }
  return r;
}
template <int W, int A, int M = 1, class T> VDEV void store_masked(T* p, const Vec<T, W>& x, long n FP_AND_SITE) {
  constexpr int EACH = Accesses<T, W, M>::EACH / (int)sizeof(T);
  if constexpr (M < A) if (n >= W) return store<W, A>(p, x FP_HERE);
  VEC_UNROLL for (int l = 0; l < W; l += EACH) {
    Vec<T, EACH> part;
    VEC_UNROLL for (int k = 0; k < EACH; k++) part.v[k] = x.v[l + k];
    if (l < n) store<EACH, EACH>(p + l, part FP_HERE);
  }
}
// Lane l < n is f(l).
template <int W, class F> VDEV auto load_lanes(F f, long n) {
  using T = decltype(f(0));
  Vec<T, W> r;
  VEC_UNROLL for (int l = 0; l < W; l++) r.v[l] = l < n ? to_lane(f(l)) : Lane<T>{};
  return r;
}
template <int W, class F, class T> VDEV void store_lanes(const Vec<T, W>& x, F f, long n) {
  VEC_UNROLL for (int l = 0; l < W; l++) if (l < n) f(l, get(x, l));
}
template <int W, class T> VDEV Vec<T, W> load_strided(const T* p, long stride, long n = W FP_AND_SITE) {
  return load_lanes<W>([=](int l) { return read(p + l * stride FP_HERE); }, n);
}
template <int W, class T> VDEV void store_strided(T* p, long stride, const Vec<T, W>& x, long n = W FP_AND_SITE) {
  store_lanes<W>(x, [=](int l, T y) { write(p + l * stride, y FP_HERE); }, n);
}
// P consecutive elements, repeated, of which A are aligned together.
template <int W, int P, int A = 1, class T> VDEV Vec<T, W> load_tile(const T* p FP_AND_SITE) {
  Vec<T, W> r;
  const auto y = load<P, A>(p FP_HERE);
  VEC_UNROLL for (int l = 0; l < W; l++) r.v[l] = y.v[l % P];
  return r;
}
// W / R consecutive elements, each R times in a row, of which A are aligned together.
template <int W, int R, int A = 1, class T> VDEV Vec<T, W> load_repeat(const T* p FP_AND_SITE) {
  Vec<T, W> r;
  const auto y = load<W / R, A>(p FP_HERE);
  VEC_UNROLL for (int l = 0; l < W; l++) r.v[l] = y.v[l / R];
  return r;
}
// By an address for each group of lanes, f(l) that of the group from lane l on: G elements, each R times in a row; G or R is 1.
// n: of lanes that are there, a multiple of a group.
template <int W, int G, int R, class F> VDEV auto load_groups(F f, long n FP_AND_SITE) {
  decltype(load<W, 1>(f(0))) r;
  VEC_UNROLL for (int l = 0; l < W; l += G * R) {
    decltype(load<G, G>(f(0))) part{};
    if (l < n) part = load<G, G>(f(l) FP_HERE);
    VEC_UNROLL for (int k = 0; k < G * R; k++) r.v[l + k] = part.v[k / R];
  }
  return r;
}
