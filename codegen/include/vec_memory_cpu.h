// Loads and stores on a CPU. A, how many elements are aligned together, is for CUDA: unaligned moves cost the same here.
#pragma once
#if defined(__clang__)
#define VEC_UNROLL _Pragma("clang loop unroll(full)")
#define VEC_NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define VEC_UNROLL _Pragma("GCC unroll 64")
#define VEC_NO_UNROLL _Pragma("GCC unroll 1")
#endif

template <int W, int A, class T> VDEV Vec<T, W> load(const T* p) {
  if constexpr (WIDE<W, T>) return {load<W / 2, 1>(p), load<W / 2, 1>(p + W / 2)};
  else if constexpr (SAME<T, boolean>) {
    Reg<uint8_t, W> b;
    memcpy(&b, p, W);
    return {core::boolean_lanes(core::convert<int32_t>(b) != 0)};
  } else { Vec<T, W> r; memcpy(&r.v, p, sizeof r.v); return r; }
}
template <int W, int A, class T> VDEV void store(T* p, const Vec<T, W>& x) {
  if constexpr (WIDE<W, T>) { store<W / 2, 1>(p, x.lo); store<W / 2, 1>(p + W / 2, x.hi); }
  else if constexpr (SAME<T, boolean>) {
    const auto b = core::convert<uint8_t>(x.v & 1);
    memcpy(p, &b, W);
  } else memcpy(p, &x.v, sizeof x.v);
}
template <class T, int W> VDEV auto as_bytes(const Vec<T, W>& x) {
  if constexpr (WIDE<W, T>) return core::joined(as_bytes(x.lo), as_bytes(x.hi));
  else return (Reg<uint8_t, W * (int)sizeof(T)>)x.v;
}
// Past the caches where the address is that of whole registers.
template <class T, int W> VDEV void stream_registers(T* p, const Vec<T, W>& x) {
  constexpr int B = W * (int)sizeof(T);
  if constexpr (B > REGISTER_BYTES) { stream_registers(p, low(x)); stream_registers(p + W / 2, high(x)); }
  else if constexpr (B == REGISTER_BYTES && !SAME<T, boolean>) {
    const auto r = (Reg<int64_t, B / 8>)as_bytes(x);
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

// The first n lanes only; n may be anything, and nothing beyond them is touched. With AVX-512 by masked moves.
namespace core {
// Compilers differ in what these builtins point to: elements or vectors.
struct Address {
  const void* p;
  template <class P> VDEV operator P*() const { return (P*)p; }
};
#if defined(VEC_AVX512) && __has_builtin(__builtin_ia32_loaddquqi128_mask) && __has_builtin(__builtin_ia32_storedquqi128_mask)
#define VEC_MASKED_MOVES(MOVE) \
  MOVE(char, 16, qi128) MOVE(short, 8, hi128) MOVE(short, 16, hi256) MOVE(int, 4, si128) MOVE(int, 8, si256) MOVE(int, 16, si512) \
  MOVE(long long, 2, di128) MOVE(long long, 4, di256) MOVE(long long, 8, di512)
// The mask is hidden from the optimiser: of a masked load whose mask it knows, g++ takes the lanes that are used and loads
// them all, beyond the tensor's end.
VDEV unsigned first_lanes(long n) {
  unsigned mask = n <= 0 ? 0 : n >= 16 ? 0xffff : (1u << n) - 1;
  __asm__("" : "+r"(mask));
  return mask;
}
// A register hidden from the optimiser: g++ makes one instruction of a masked store and of what computed its lanes, and
// one that takes a part of a register (vextracti32x4) faults at lanes that its mask leaves out.
template <class R> VDEV R hidden(R x) {
  __asm__("" : "+v"(x));
  return x;
}
#else
#define VEC_MASKED_MOVES(MOVE)
#endif
// AVX2 has masked moves of 4 and 8 bytes.
#if defined(__AVX2__) && !defined(VEC_AVX512) && __has_builtin(__builtin_ia32_maskloadd256) && __has_builtin(__builtin_ia32_maskstored256)
#define VEC_WIDE_MASKED_MOVES(MOVE) MOVE(int, 4, d) MOVE(int, 8, d256) MOVE(long long, 2, q) MOVE(long long, 4, q256)
template <class E, int L> VDEV Reg<E, L> first_of(long n) {  // -1 in the first n lanes
  const E most = (E)(n < 0 ? 0 : n > L ? L : n);
  Reg<E, L> lanes;
  for (int l = 0; l < L; l++) lanes[l] = (E)l;
  return (Reg<E, L>)(lanes < most);
}
#else
#define VEC_WIDE_MASKED_MOVES(MOVE)
#endif
// Without masked moves: a register that is all there at once. Of another, where n is known when compiling, lanes are loaded
// by halves (6 of 8 are 4 and 2) and stored one by one: g++ joins those of repeated rows by itself, and g++ 12 ends in a
// fault of its own where halves of one number in all lanes are stored. 24 bf16 read and written ten times, with AVX2: 72 ->
// 19 us. Else lanes of 1 and 2 bytes one by one, too: a register that was just put together in memory is read late (13
// columns of bf16 transposed: 370 -> 600 us). Wider ones, which only machines without AVX2 have here, through memory in a
// loop, since code for each lane would grow with every access; one that g++ does not take for a memcpy, which it would call.
template <class R> constexpr bool BY_LANES = LANES<R> <= 8 && sizeof(Element<R>) <= 2;
template <class R> VDEV R load_parts(const Element<R>* p, long n) {
  constexpr int L = LANES<R>;
  R r{};
  if (n >= L) memcpy(&r, p, sizeof r);
  else if constexpr (L > 1) {
    if (__builtin_constant_p(n)) {
      using H = Reg<Element<R>, L / 2>;
      const H low = load_parts<H>(p, n), high = load_parts<H>(p + L / 2, n - L / 2);
      if constexpr (L == 2) r = R{low, high};
      else r = joined(low, high);
    } else if constexpr (BY_LANES<R>) {
      for (int l = 0; l < L; l++) if (l < n) r[l] = p[l];
    } else {
      Element<R> at[L] = {};
      VEC_NO_UNROLL for (int l = 0; l < (int)n; l++) { at[l] = p[l]; __asm__("" : "+r"(l)); }
      memcpy(&r, at, sizeof r);
    }
  }
  return r;
}
template <class R> VDEV void store_parts(Element<R>* p, R x, long n) {
  if (n >= LANES<R>) memcpy(p, &x, sizeof x);
  else if (LANES<R> == 1 || BY_LANES<R> || __builtin_constant_p(n)) {
    for (int l = 0; l < LANES<R>; l++) if (l < n) p[l] = lane(x, l);
  } else {
    Element<R> at[LANES<R>];
    memcpy(at, &x, sizeof x);
    VEC_NO_UNROLL for (int l = 0; l < (int)n; l++) { p[l] = at[l]; __asm__("" : "+r"(l)); }
  }
}
template <class R> VDEV R load_first(const Element<R>* p, long n) {
#define MOVE(E, L, suffix) \
  if constexpr (LANES<R> == L && sizeof(Element<R>) == sizeof(E)) \
    return (R)__builtin_ia32_loaddqu##suffix##_mask(Address{p}, Reg<E, L>{}, first_lanes(n)); else
#define WIDE_MOVE(E, L, suffix) \
  if constexpr (LANES<R> == L && sizeof(Element<R>) == sizeof(E)) { \
    if (!__builtin_constant_p(n)) return (R)__builtin_ia32_maskload##suffix(Address{p}, first_of<E, L>(n)); \
  } else
  VEC_MASKED_MOVES(MOVE) {
    VEC_WIDE_MASKED_MOVES(WIDE_MOVE) {}
    return load_parts<R>(p, n);
  }
#undef MOVE
#undef WIDE_MOVE
}
template <class R> VDEV void store_first(Element<R>* p, R x, long n) {
#define MOVE(E, L, suffix) \
  if constexpr (LANES<R> == L && sizeof(Element<R>) == sizeof(E)) \
    __builtin_ia32_storedqu##suffix##_mask(Address{p}, (Reg<E, L>)hidden(x), first_lanes(n)); else
#define WIDE_MOVE(E, L, suffix) \
  if constexpr (LANES<R> == L && sizeof(Element<R>) == sizeof(E)) { \
    if (!__builtin_constant_p(n)) return (void)__builtin_ia32_maskstore##suffix(Address{p}, first_of<E, L>(n), (Reg<E, L>)x); \
  } else
  VEC_MASKED_MOVES(MOVE) {
    VEC_WIDE_MASKED_MOVES(WIDE_MOVE) {}
    store_parts(p, x, n);
  }
#undef MOVE
#undef WIDE_MOVE
}
}  // namespace core
template <int W, int A, class T> VDEV Vec<T, W> load_masked(const T* p, long n) {
  if constexpr (WIDE<W, T>) return {load_masked<W / 2, 1>(p, n), load_masked<W / 2, 1>(p + W / 2, n - W / 2)};
  else if constexpr (SAME<T, boolean>) {
    return {core::boolean_lanes(core::convert<int32_t>(core::load_first<Reg<uint8_t, W>>((const uint8_t*)p, n)) != 0)};
  } else return {core::load_first<Reg<Lane<T>, W>>((const Lane<T>*)p, n)};
}
template <int W, int A, class T> VDEV void store_masked(T* p, const Vec<T, W>& x, long n) {
  if constexpr (WIDE<W, T>) { store_masked<W / 2, 1>(p, x.lo, n); store_masked<W / 2, 1>(p + W / 2, x.hi, n - W / 2); }
  else if constexpr (SAME<T, boolean>) core::store_first((uint8_t*)p, core::convert<uint8_t>(x.v & 1), n);
  else core::store_first((Lane<T>*)p, x.v, n);
}

// Lane l < n is f(l), beyond that 0. Few lanes are joined from scalars, since a vector read back from scalar stores waits
// for them; many go through memory, one by one in a loop, since code for each would grow with every access and lane: 13
// loads of 64 lanes joined from scalars took g++ 28 s, and their kernel 1.07 ms, in loops 0.5 s and 0.73 ms.
constexpr int FEW_LANES = 8;
template <int W, class F> VDEV auto load_lanes(F f, long n) {
  using T = decltype(f(0));
  if constexpr (W == 1) return Vec<T, 1>{to_lane(0 < n ? f(0) : bits<T>(0))};
  else if constexpr (W <= FEW_LANES) {
    return join(load_lanes<W / 2>(f, n), load_lanes<W / 2>([&](int l) { return f(l + W / 2); }, n - W / 2));
  } else {
    alignas(64) T at[W];
    if (n < W) memset(at, 0, sizeof at);
    const int most = n < W ? (int)n : W;
    VEC_NO_UNROLL for (int l = 0; l < most; l++) at[l] = f(l);
    return load<W, 1>(at);
  }
}
template <int W, class F, class T> VDEV void store_lanes(const Vec<T, W>& x, F f, long n) {
  if constexpr (W == 1) { if (0 < n) f(0, get(x, 0)); }
  else if constexpr (W <= FEW_LANES) {
    store_lanes<W / 2>(low(x), f, n);
    store_lanes<W / 2>(high(x), [&](int l, T y) { f(l + W / 2, y); }, n - W / 2);
  } else {
    alignas(64) T at[W];
    store<W, 1>(at, x);
    const int most = n < W ? (int)n : W;
    VEC_NO_UNROLL for (int l = 0; l < most; l++) { f(l, at[l]); __asm__("" : "+r"(l)); }
  }
}
// Tails of all kernels' strided accesses, once for each type and width.
template <int W, class T> VCOLD Vec<T, W> load_strided_first(const T* p, long stride, long n) {
  return load_lanes<W>([=](int l) { return p[l * stride]; }, n);
}
template <int W, class T> VCOLD void store_strided_first(T* p, long stride, const Vec<T, W>& x, long n) {
  store_lanes<W>(x, [=](int l, T y) { p[l * stride] = y; }, n);
}
template <int W, class T> VDEV Vec<T, W> load_strided(const T* p, long stride, long n = W) {
  if (n < W) return load_strided_first<W>(p, stride, n);
  return load_lanes<W>([=](int l) { return p[l * stride]; }, W);
}
template <int W, class T> VDEV void store_strided(T* p, long stride, const Vec<T, W>& x, long n = W) {
  if (n < W) store_strided_first<W>(p, stride, x, n);
  else store_lanes<W>(x, [=](int l, T y) { p[l * stride] = y; }, W);
}
// P consecutive elements, repeated.
template <int W, int P, int A = 1, class T> VDEV Vec<T, W> load_tile(const T* p) {
  if constexpr (W == P) return load<W, 1>(p);
  else if constexpr (P == 1) return splat<W>(*p);
  else { const auto h = load_tile<W / 2, P>(p); return join(h, h); }
}
// W / R consecutive elements, each R times in a row.
template <int W, int R, int A = 1, class T> VDEV Vec<T, W> load_repeat(const T* p) {
  if constexpr (R == 1) return load<W, 1>(p);
  else if constexpr (R == W) return splat<W>(*p);
#ifdef VEC_SHUFFLES
  else if constexpr (!WIDE<W, T>) return {core::repeated<R>(load<W / R, 1>(p).v, core::FirstIndices<W>{})};
#endif
  else return join(load_repeat<W / 2, R>(p), load_repeat<W / 2, R>(p + W / 2 / R));
}
