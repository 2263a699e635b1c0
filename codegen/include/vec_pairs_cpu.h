// bf16 two by two: a lane of 32 bits holds two neighbours. As floats they come apart, the even elements into one register
// and the odd ones into the next: a shift and an `and` for two registers, where widening takes two shuffles and two shifts.
// Kernels may have their lanes in this order wherever none is asked for its number (codegen/printer/bf16_pairs.py).
#pragma once
template <int W> constexpr bool PAIRED = W >= 2 * REGISTER<float>;
// In the order of memory.
template <int W, bool ONE> struct PairStorage { Reg<uint32_t, W == 1 ? 1 : W / 2> v; };
template <int W> struct Pairs;
template <int W> struct PairStorage<W, false> { Pairs<W / 2> lo, hi; };
template <int W> struct Pairs : PairStorage<W, W <= 2 * REGISTER<float>> {};

template <int W, int A> VDEV auto load_pairs(const bf16* p) {
  if constexpr (!PAIRED<W>) return load<W, A>(p);
  else if constexpr (W > 2 * REGISTER<float>) return Pairs<W>{load_pairs<W / 2, 1>(p), load_pairs<W / 2, 1>(p + W / 2)};
  else { Pairs<W> r; memcpy(&r.v, p, sizeof r.v); return r; }
}
template <class U, int W> VDEV Vec<U, W> cast(const Pairs<W>& x) {
  if constexpr (W > 2 * REGISTER<float>) return {cast<U>(x.lo), cast<U>(x.hi)};
  else {
    using F = Reg<float, W / 2>;
    return join(Vec<U, W / 2>{core::as<F>(x.v << 16)}, Vec<U, W / 2>{core::as<F>(x.v & 0xffff0000u)});
  }
}
template <int W> VDEV Vec<float, W> widen(const Pairs<W>& x) { return cast<float>(x); }
template <int W, int A> VDEV void store(bf16* p, const Pairs<W>& x) {
  if constexpr (W > 2 * REGISTER<float>) { store<W / 2, 1>(p, x.lo); store<W / 2, 1>(p + W / 2, x.hi); }
  else memcpy(p, &x.v, sizeof x.v);
}
template <int W> VDEV Vec<uint32_t, W / 2> words(const Pairs<W>& x) {
  if constexpr (W > 2 * REGISTER<float>) return {words(x.lo), words(x.hi)};
  else return {x.v};
}
template <int W, int A> VDEV void store_stream(bf16* p, const Pairs<W>& x) {
  if (__builtin_expect(((uintptr_t)p & (REGISTER_BYTES - 1)) == 0, 1)) stream_registers((uint32_t*)p, words(x));
  else store<W, A>(p, x);
}
namespace core {
// The upper halves of the lanes of two registers, those of `even` below those of `odd`.
template <class U> VDEV U upper_of_each(U even, U odd) {
#if defined(VEC_AVX512) && __has_builtin(__builtin_ia32_blendmw_512_mask)
  using H = Reg<short, 2 * LANES<U>>;
  if constexpr (sizeof(U) == 64) return (U)__builtin_ia32_blendmw_512_mask((H)(even >> 16), (H)odd, 0xaaaaaaaau);
#endif
  return even >> 16 | (odd & 0xffff0000u);
}
}  // namespace core
// Of floats that are bf16 all of them.
template <int W> VDEV auto exact_pairs(const Vec<float, W>& x) {
  if constexpr (!PAIRED<W>) return cast_exact<bf16>(x);
  else if constexpr (W > 2 * REGISTER<float>) return Pairs<W>{exact_pairs(x.lo), exact_pairs(x.hi)};
  else {
    using U = Reg<uint32_t, W / 2>;
    return Pairs<W>{core::upper_of_each(core::as<U>(x.lo.v), core::as<U>(x.hi.v))};
  }
}
#if defined(VEC_BF16) && defined(VEC_SHUFFLES)
// What one instruction rounds, of two registers: the even elements, then the odd ones.
template <int W, bool ONE> struct RoundedStorage { Reg<uint16_t, W> v; };
template <int W> struct Rounded;
template <int W> struct RoundedStorage<W, false> { Rounded<W / 2> lo, hi; };
template <int W> struct Rounded : RoundedStorage<W, W <= 2 * REGISTER<float>> {};

// Rounds, but flushes denormals. Not 0 where some result is 0.
template <int W> VDEV uint32_t round_or_flush(const Vec<float, W>& x, Rounded<W>& r) {
  if constexpr (W > 2 * REGISTER<float>) return round_or_flush(x.lo, r.lo) | round_or_flush(x.hi, r.hi);
  else {
    uint32_t zeros;
    const auto magnitude = core::fill<Reg<uint16_t, W>>((uint16_t)0x7fff);
    __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(r.v) : "v"(x.lo.v), "v"(x.hi.v));
    __asm__("vptestnmw %1, %2, %0" : "=k"(zeros) : "v"(r.v), "v"(magnitude));
    return zeros;
  }
}
template <int W> VDEV Rounded<W> round_denormals(const Vec<float, W>& x) {
  if constexpr (W > 2 * REGISTER<float>) return {round_denormals(x.lo), round_denormals(x.hi)};
  else return {core::joined(core::round_bf16_denormals(x.lo.v), core::round_bf16_denormals(x.hi.v))};
}
template <int W> VDEV auto round_pairs(const Vec<float, W>& x) {
  if constexpr (!PAIRED<W>) return cast<bf16>(x);
  else {
    Rounded<W> r;
    if (round_or_flush(x, r) && __builtin_expect(has_denormals(x), 0)) return round_denormals(x);
    return r;
  }
}
namespace core {
// The lanes of the first half of x between those of the second.
template <class H, int... I> VDEV auto halves_in_turn(H x, Indices<I...>) {
  return __builtin_shufflevector(x, x, (I / 2 + I % 2 * LANES<H> / 2)...);
}
// Floats of the lanes from FIRST on.
template <int FIRST, class H, int... I> VDEV auto upper(H x, Indices<I...>) {
  using F = Reg<float, LANES<H> / 2>;
#if __has_builtin(__builtin_ia32_permvarhi512_mask)
  const Reg<short, LANES<H>> places = {(FIRST + I / 2)...};
  return as<F>(__builtin_ia32_permvarhi512_mask((Reg<short, LANES<H>>)x, places, Reg<short, LANES<H>>{}, 0xaaaaaaaau));
#else
  return as<F>(convert<uint32_t>(part<FIRST, LANES<H> / 2>(x)) << 16);
#endif
}
}  // namespace core
template <int W> VDEV Vec<float, W> widen(const Rounded<W>& x) {
  if constexpr (W > 2 * REGISTER<float>) return {widen(x.lo), widen(x.hi)};
  else {
    constexpr core::FirstIndices<W> all{};
    return join(Vec<float, W / 2>{core::upper<0>(x.v, all)}, Vec<float, W / 2>{core::upper<W / 2>(x.v, all)});
  }
}
template <int W> VDEV Pairs<W> paired(const Rounded<W>& x) {
  if constexpr (W > 2 * REGISTER<float>) return {paired(x.lo), paired(x.hi)};
  else return {core::as<Reg<uint32_t, W / 2>>(core::halves_in_turn(x.v, core::FirstIndices<W>{}))};
}
template <int W, int A> VDEV void store(bf16* p, const Rounded<W>& x) { store<W, A>(p, paired(x)); }
template <int W, int A> VDEV void store_stream(bf16* p, const Rounded<W>& x) { store_stream<W, A>(p, paired(x)); }
#else
template <int W> VDEV auto round_pairs(const Vec<float, W>& x) {
  if constexpr (!PAIRED<W>) return cast<bf16>(x);
  else if constexpr (W > 2 * REGISTER<float>) return Pairs<W>{round_pairs(x.lo), round_pairs(x.hi)};
  else return Pairs<W>{core::upper_of_each(core::round_upper(x.lo.v), core::round_upper(x.hi.v))};
}
#endif
// start, start + 1, ... in the order in which pairs come apart.
template <class T, int W> VDEV Vec<T, W> iota_pairs(int64_t start) {
  if constexpr (!PAIRED<W>) return iota_<T, W>(start);
  else if constexpr (W > 2 * REGISTER<float>) return join(iota_pairs<T, W / 2>(start), iota_pairs<T, W / 2>(start + W / 2));
  else {
    const auto number = iota_<T, W / 2>(0), even = add_(add_(number, number), splat<W / 2>((T)start));
    return join(even, add_(even, splat<W / 2>((T)1)));
  }
}
