// Loads and stores on a CPU. A tells how many elements are known to be aligned together; unaligned moves cost the same here.
#pragma once
template <int W, int A, class T> VDEV Vec<T, W> load(const T* p) {
  if constexpr (WIDE<W, T>) return {load<W / 2, (A < W / 2 ? A : W / 2)>(p), load<W / 2, (A < W / 2 ? A : W / 2)>(p + W / 2)};
  else if constexpr (SAME<T, boolean>) {
    Reg<uint8_t, W> b;
    memcpy(&b, p, W);
    return {core::boolean_lanes(core::convert<int32_t>(b) != 0)};
  } else { Vec<T, W> r; memcpy(&r.v, p, sizeof r.v); return r; }
}
template <int W, int A, class T> VDEV void store(T* p, const Vec<T, W>& x) {
  if constexpr (WIDE<W, T>) { store<W / 2, (A < W / 2 ? A : W / 2)>(p, x.lo); store<W / 2, (A < W / 2 ? A : W / 2)>(p + W / 2, x.hi); }
  else if constexpr (SAME<T, boolean>) {
    const auto b = core::convert<uint8_t>(x.v & 1);
    memcpy(p, &b, W);
  } else memcpy(p, &x.v, sizeof x.v);
}
// Past the caches where the address is that of whole registers.
template <class T, int W> VDEV void stream_registers(T* p, const Vec<T, W>& x) {
  constexpr int B = W * (int)sizeof(T);
  if constexpr (B > REGISTER_BYTES) { stream_registers(p, low(x)); stream_registers(p + W / 2, high(x)); }
  else if constexpr (B == REGISTER_BYTES && !SAME<T, boolean>) {
    Reg<int64_t, B / 8> r;
    if constexpr (WIDE<W, T>) store<W, 1>((T*)&r, x);
    else r = (Reg<int64_t, B / 8>)x.v;
#if __has_builtin(__builtin_nontemporal_store)
    __builtin_nontemporal_store(r, (Reg<int64_t, B / 8>*)p);
#elif defined(VEC_AVX512)
    __builtin_ia32_movntdq512((Reg<long long, 8>*)p, (Reg<long long, 8>)r);
#elif defined(__AVX2__)
    __builtin_ia32_movntdq256((Reg<long long, 4>*)p, (Reg<long long, 4>)r);
#elif defined(__SSE2__)
    __builtin_ia32_movntdq((Reg<long long, 2>*)p, (Reg<long long, 2>)r);
#else
    memcpy(p, &r, B);
#endif
  }
}
template <int W, int A, class T> VDEV void store_stream(T* p, const Vec<T, W>& x) {
  if constexpr (W * sizeof(T) % REGISTER_BYTES == 0 && !SAME<T, boolean>) {
    if (__builtin_expect(((uintptr_t)p & (REGISTER_BYTES - 1)) == 0, 1)) return stream_registers(p, x);
  }
  store<W, A>(p, x);
}

// The first n lanes only; n may be anything.
template <int W, int A, class T> VDEV Vec<T, W> load_masked(const T* p, long n) {
  if (n >= W) return load<W, A>(p);
  Vec<T, W> r = splat<W>(bits<T>(0));
  for (int l = 0; l < W; l++) if (l < n) set(r, l, p[l]);
  return r;
}
template <int W, int A, class T> VDEV void store_masked(T* p, const Vec<T, W>& x, long n) {
  if (n >= W) return store<W, A>(p, x);
  for (int l = 0; l < W; l++) if (l < n) p[l] = get(x, l);
}

// Lane l < n is f(l).
template <int W, class F> VDEV auto load_lanes(F f, long n) {
  using T = decltype(f(0));
  T t[W];
  for (int l = 0; l < W; l++) t[l] = l < n ? f(l) : bits<T>(0);
  return load<W, 1>(t);
}
template <int W, class F, class T> VDEV void store_lanes(const Vec<T, W>& x, F f, long n) {
  T t[W];
  store<W, 1>(t, x);
  for (int l = 0; l < W; l++) if (l < n) f(l, t[l]);
}
template <int W, class T> VDEV Vec<T, W> load_strided(const T* p, long stride, long n = W) {
  return load_lanes<W>([=](int l) { return p[l * stride]; }, n);
}
template <int W, class T> VDEV void store_strided(T* p, long stride, const Vec<T, W>& x, long n = W) {
  store_lanes<W>(x, [=](int l, T y) { p[l * stride] = y; }, n);
}
// P consecutive elements, repeated.
template <int W, int P, class T> VDEV Vec<T, W> load_tile(const T* p) {
  if constexpr (W == P) return load<W, 1>(p);
  else if constexpr (P == 1) return splat<W>(*p);
  else { const auto h = load_tile<W / 2, P>(p); return join(h, h); }
}
// W / R consecutive elements, each R times in a row.
template <int W, int R, class T> VDEV Vec<T, W> load_repeat(const T* p) {
  if constexpr (R == 1) return load<W, 1>(p);
  else if constexpr (R == W) return splat<W>(*p);
  else if constexpr (WIDE<W, T>) return {load_repeat<W / 2, R>(p), load_repeat<W / 2, R>(p + W / 2 / R)};
  else return load_lanes<W>([=](int l) { return p[l / R]; }, W);
}
