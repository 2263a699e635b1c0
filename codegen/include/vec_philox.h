// Philox4x32-10 (Salmon et al. 2011): pure random numbers of (seed, offset, stream, linear index).
#pragma once
namespace core {
// R: int64 lanes. The word of element `linear`, in the low half.
template <class R> VDEV UintLike<R> philox_word(int64_t seed, int64_t offset, int64_t stream, R linear) {
  using U = UintLike<R>;
  constexpr uint64_t WORD = 0xffffffffull;
  const U group = as<U>(linear >> 2) + (uint64_t)offset, which = as<U>(linear) & 3ull;
  U c0 = group & WORD, c1 = group >> 32, c2 = fill<U>((uint64_t)stream & WORD), c3 = fill<U>((uint64_t)stream >> 32);
  uint64_t k0 = (uint64_t)seed & WORD, k1 = (uint64_t)seed >> 32;
  for (int i = 0; i < 10; i++) {
    const U a = c0 * 0xD2511F53ull, b = c2 * 0xCD9E8D57ull;
    c0 = (b >> 32) ^ c1 ^ k0;
    c2 = (a >> 32) ^ c3 ^ k1;
    c1 = b & WORD;
    c3 = a & WORD;
    k0 = (k0 + 0x9E3779B9ull) & WORD;
    k1 = (k1 + 0xBB67AE85ull) & WORD;
  }
  return which == 0ull ? c0 : which == 1ull ? c1 : which == 2ull ? c2 : c3;
}
template <class R> VDEV Like<float, R> uniform(int64_t seed, int64_t offset, int64_t stream, R linear) {
  return convert<float>(convert<int32_t>(philox_word(seed, offset, stream, linear) >> 8)) * 0x1p-24f;
}
}  // namespace core
