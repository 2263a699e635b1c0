// A division of many by one: a shorter way to the same bits, for registers whose lanes are all ordinary numbers.
#pragma once
#if defined(VEC_AVX512)
namespace core {
// Floats of which each is 0 or of a magnitude from 2^-100 to 2^100. Doubled bits drop the sign; 1 less makes 0 the largest.
template <class R> struct Ordinary {
  UintLike<R> least, most;
  VDEV void take(R a) {
    const UintLike<R> m = as<UintLike<R>>(a) + as<UintLike<R>>(a), rest = m - 1u;
    least = rest < least ? rest : least;
    most = m > most ? m : most;
  }
  VDEV bool all_are() const {
    constexpr uint32_t LOW = (uint32_t)(127 - 100) << 24, HIGH = (uint32_t)(127 + 100) << 24;
    return !any(as<IntLike<R>>((least < LOW - 1u) | (most > HIGH)));
  }
};
}  // namespace core
template <int W, class R> VDEV void take(core::Ordinary<R>& seen, const Vec<float, W>& a) {
  if constexpr (WIDE<W, float>) { take(seen, a.lo); take(seen, a.hi); }
  else seen.take(a.v);
}
// a / b, one b for all lanes. With r = 1 / b and q = a r rounded, q + (a - q b) r is a / b rounded where q is within an ulp of it
// and nothing underflows (Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor"). q may be
// off by one and a half: that this changes no quotient is not proved, but tested where it is hardest, next to the middle of
// two floats (tests/cpu/test_vec_divided.py). A zero keeps its sign since b is above 0.
template <int W> VDEV Vec<float, W> divided_(const Vec<float, W>& a, const Vec<float, 1>& b) {
  if constexpr (W < REGISTER<float>) return div_(a, splat<W>(b));
  else {
    core::Ordinary<Reg<float, REGISTER<float>>> seen{~decltype(core::Ordinary<Reg<float, REGISTER<float>>>::least){}, {}};
    take(seen, a);
    const float by = b.v, inverse = 1.0f / by;
    if (__builtin_expect(by >= 0x1p-20f && by <= 0x1p20f && seen.all_are(), 1)) {
      const auto q = mul_(a, splat<W>(inverse));
      return fma_(neg_(fma_(q, splat<W>(by), neg_(a))), splat<W>(inverse), q);
    }
    return div_(a, splat<W>(b));
  }
}
#else
template <int W> VDEV Vec<float, W> divided_(const Vec<float, W>& a, const Vec<float, 1>& b) { return div_(a, splat<W>(b)); }
#endif
