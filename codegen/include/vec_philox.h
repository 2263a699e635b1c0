// Philox4x32-10 (Salmon et al. 2011): pure random numbers of (seed, offset, stream, linear index).
#pragma once
namespace core {
// The four words of counters, in the low halves of 64-bit lanes; what is above them means nothing.
template <class U> struct PhiloxWords { U w0, w1, w2, w3; };
// U: uint64 lanes. group: the counters' first two words.
template <class U> VDEV PhiloxWords<U> philox(int64_t seed, int64_t stream, U group) {
  U c0 = group, c1 = group >> 32, c2 = fill<U>((uint64_t)stream), c3 = fill<U>((uint64_t)stream >> 32);
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)((uint64_t)seed >> 32);
  for (int i = 0; i < 10; i++) {
    const U a = low_product(c0, 0xD2511F53u), b = low_product(c2, 0xCD9E8D57u);
    c0 = (b >> 32) ^ c1 ^ (uint64_t)k0;
    c2 = (a >> 32) ^ c3 ^ (uint64_t)k1;
    c1 = b;
    c3 = a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}
// A word as a number in [0, 1).
template <class R> VDEV Like<float, R> unit_float(R word) {
  return convert<float>(convert<int32_t>((R)((word & (Element<R>)0xffffffffu) >> 8))) * 0x1p-24f;
}
// R: int64 lanes, any linear indices.
template <class R> VDEV Like<float, R> uniform(int64_t seed, int64_t offset, int64_t stream, R linear) {
  using U = UintLike<R>;
  const U which = as<U>(linear) & 3ull;
  const auto w = philox(seed, stream, as<U>(linear >> 2) + (uint64_t)offset);
  return unit_float(which == 0ull ? w.w0 : which == 1ull ? w.w1 : which == 2ull ? w.w2 : w.w3);
}
#ifndef VEC_CUDA
// a0 b0 a1 b1 ..., half in each.
template <class U> struct Halves { U lo, hi; };
template <class U> VDEV Halves<U> zipped(U a, U b) {
  if constexpr (SCALAR<U>) return {a, b};
#ifdef VEC_SHUFFLES
  else return {interleaved<0>(a, b, FirstIndices<LANES<U>>{}), interleaved<1>(a, b, FirstIndices<LANES<U>>{})};
#else
  else {
    U lo{}, hi{};
    for (int l = 0; l < LANES<U>; l++) {
      lo[l] = l % 2 ? b[l / 2] : a[l / 2];
      hi[l] = (l % 2 ? b : a)[(LANES<U> + l) / 2];
    }
    return {lo, hi};
  }
#endif
}
#endif
}  // namespace core
// Elements `linear` of a random tensor.
template <int W> VDEV Vec<float, W> uniform_(int64_t seed, int64_t offset, int64_t stream, const Vec<int64_t, W>& linear) {
  return apply<float>([=](auto i) { return core::uniform(seed, offset, stream, i); }, linear);
}
// Elements start, start + 1, ..., where start and W are multiples of 4: all words of each counter.
template <int W> VDEV Vec<float, W> uniform_run(int64_t seed, int64_t offset, int64_t stream, int64_t start) {
  static_assert(W % 4 == 0, "a run holds whole counters");
  const uint64_t group = (uint64_t)(start >> 2) + (uint64_t)offset;
#ifdef VEC_CUDA
  Vec<float, W> r;
  VEC_UNROLL for (int i = 0; i < W; i += 4) {
    const auto w = core::philox(seed, stream, group + (uint64_t)(i / 4));
    r.v[i] = core::unit_float(w.w0);
    r.v[i + 1] = core::unit_float(w.w1);
    r.v[i + 2] = core::unit_float(w.w2);
    r.v[i + 3] = core::unit_float(w.w3);
  }
  return r;
#else
  if constexpr (WIDE<W / 4, int64_t>) {
    return join(uniform_run<W / 2>(seed, offset, stream, start), uniform_run<W / 2>(seed, offset, stream, start + W / 2));
  } else {
    using U = Reg<uint64_t, W / 4>;
    using Half = Reg<uint32_t, W / 2>;
    const auto w = core::philox(seed, stream, (U)count<W / 4>().v + group);
    const U a = (w.w0 & 0xffffffffull) | w.w1 << 32, b = (w.w2 & 0xffffffffull) | w.w3 << 32;
    const auto r = core::zipped(a, b);
    return join(
        Vec<float, W / 2>{core::unit_float(core::as<Half>(r.lo))}, Vec<float, W / 2>{core::unit_float(core::as<Half>(r.hi))});
  }
#endif
}
