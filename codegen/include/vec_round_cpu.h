// Vecs of floats to bf16 on x86-64, two registers at once; and what was rounded back to floats.
#pragma once
#if defined(VEC_BF16) && defined(VEC_SHUFFLES)
// Rounds, but flushes denormals. Not 0 where some result is 0.
template <int W> VDEV uint32_t round_or_flush(const Vec<float, W>& x, Vec<bf16, W>& r) {
  if constexpr (W > 2 * REGISTER<float>) return round_or_flush(x.lo, r.lo) | round_or_flush(x.hi, r.hi);
  else {
    constexpr int L = REGISTER<float>;
    Reg<uint16_t, 2 * L> y;
    uint32_t zeros;
    const auto magnitude = core::fill<Reg<uint16_t, 2 * L>>((uint16_t)0x7fff);
    __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(y) : "v"(x.lo.v), "v"(x.hi.v));
    __asm__("vptestnmw %1, %2, %0" : "=k"(zeros) : "v"(y), "v"(magnitude));
    r.lo.v = core::part<0, L>(y);
    r.hi.v = core::part<L, L>(y);
    return zeros;
  }
}
template <int W> VDEV bool has_denormals(const Vec<float, W>& x) {
  if constexpr (WIDE<W, float>) return has_denormals(x.lo) | has_denormals(x.hi);
  else return __builtin_ia32_fpclassps512_mask(x.v, 0x20, (unsigned short)-1);
}
template <int W> VDEV Vec<bf16, W> round_bf16(const Vec<float, W>& x) {
  if constexpr (!WIDE<W, float>) return apply<bf16>([](auto r) { return core::round_bf16(r); }, x);
  else {
    Vec<bf16, W> r;
    if (round_or_flush(x, r) && __builtin_expect(has_denormals(x), 0))
      return apply<bf16>([](auto r) { return core::round_bf16_denormals(r); }, x);  // register by register: no Vec on the stack
    return r;
  }
}
#else
template <int W> VDEV Vec<bf16, W> round_bf16(const Vec<float, W>& x) {
  return apply<bf16>([](auto r) { return core::round_bf16(r); }, x);
}
#endif
// What is in registers, each element into the upper half of a lane by one shuffle; from memory, the load widens (`cast`).
namespace core {
template <class H> VDEV Like<float, H> widen_bf16(H h) {
#if defined(VEC_AVX512) && __has_builtin(__builtin_ia32_si512_256si) && __has_builtin(__builtin_ia32_permvarhi512_mask)
  if constexpr (LANES<H> == 16) {
    const Reg<short, 32> places = {0, 0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0, 8, 0, 9, 0, 10, 0, 11, 0, 12, 0, 13, 0, 14, 0, 15};
    const auto wide = (Reg<short, 32>)__builtin_ia32_si512_256si((Reg<int, 8>)h);
    return (Reg<float, 16>)__builtin_ia32_permvarhi512_mask(wide, places, Reg<short, 32>{}, 0xaaaaaaaau);
  } else
#endif
    return as<Like<float, H>>(convert<uint32_t>(h) << 16);
}
}  // namespace core
template <int W> VDEV Vec<float, W> widen(const Vec<bf16, W>& x) {
  return apply<float>([](auto r) { return core::widen_bf16(r); }, x);
}
#if defined(VEC_AVX512) && defined(VEC_SHUFFLES)
namespace core {
template <class R, int... I> VDEV R odd_lanes(R a, R b, Indices<I...>) { return __builtin_shufflevector(a, b, (2 * I + 1)...); }
}  // namespace core
// The upper half of each lane, of two registers by one shuffle.
template <int W> VDEV Vec<bf16, W> upper_halves(const Vec<float, W>& x) {
  constexpr int L = REGISTER<float>;
  if constexpr (W > 2 * L) return {upper_halves(x.lo), upper_halves(x.hi)};
  else {
    using Halves = Reg<uint16_t, 2 * L>;
    const auto y = core::odd_lanes((Halves)x.lo.v, (Halves)x.hi.v, core::FirstIndices<2 * L>{});
    Vec<bf16, W> r;
    r.lo.v = core::part<0, L>(y);
    r.hi.v = core::part<L, L>(y);
    return r;
  }
}
#endif
