// f16, bf16, f8e4m3 and f8e5m2 from float and back by integer arithmetic, for any target. Where a target has an instruction
// with the same result it takes that: it defines core::round_f16, round_bf16 and read_f16 after this file.
#pragma once
namespace core {
// A float of M mantissa bits and exponent bias B, rounded to nearest even: its bits without the sign, for |x| finite or
// not; values that round beyond `largest` become `beyond`.
template <int M, int B, class R> VDEV Like<uint32_t, R> round_magnitude(R x, uint32_t largest, uint32_t beyond, uint32_t nan) {
  using U = Like<uint32_t, R>;
  const U m = magnitude_of(x), half = fill<U>((1u << (22 - M)) - 1) + ((m >> (23 - M)) & 1u);
  const U normal = (m - ((127u - B) << 23) + half) >> (23 - M);
  constexpr uint32_t magic = (uint32_t)(127 + 24 - B - M) << 23;  // its last place is that of the denormals of the result
  const U denormal = as<U>(as<R>(m) + as<float>(magic)) - magic;
  const U r = m < ((128u - B) << 23) ? denormal : normal;
  return m > 0x7f800000u ? fill<U>(nan) : r > largest ? fill<U>(beyond) : r;
}
template <int M, int B, class U> VDEV Like<float, U> read_magnitude(U m) {
  const auto small = convert<float>(as<Like<int32_t, U>>(m)) * as<float>((uint32_t)(127 + 1 - B - M) << 23);
  return m < (1u << M) ? small : as<Like<float, U>>((m << (23 - M)) + ((127u - B) << 23));
}
template <class R> VDEV Like<uint16_t, R> round_f16_portable(R x) {
  return convert<uint16_t>(round_magnitude<10, 15>(x, 0x7bffu, 0x7c00u, 0x7e00u) | sign_of(x) >> 16);
}
template <class H> VDEV Like<float, H> read_f16_portable(H h) {
  using U = Like<uint32_t, H>;
  const U u = convert<uint32_t>(h), m = u & 0x7fffu;
  const U r = as<U>(read_magnitude<10, 15>(m));
  return as<Like<float, H>>((m < 0x7c00u ? r : (m << 13) + (224u << 23)) | (u & 0x8000u) << 16);
}
// bf16 in the upper half of each lane, and something below.
template <class R> VDEV Like<uint32_t, R> round_upper(R x) {
  using U = Like<uint32_t, R>;
  const U u = as<U>(x);
  return (u & 0x7fffffffu) > 0x7f800000u ? u | 64u << 16 : u + 0x7fffu + ((u >> 16) & 1u);
}
template <class R> VDEV Like<uint16_t, R> round_bf16_portable(R x) { return convert<uint16_t>(round_upper(x) >> 16); }
// Saturates: there are no infinities.
template <class R> VDEV Like<uint8_t, R> round_f8e4m3(R x) {
  return convert<uint8_t>(round_magnitude<3, 7>(x, 0x7eu, 0x7eu, 0x7fu) | sign_of(x) >> 24);
}
template <class R> VDEV Like<uint8_t, R> round_f8e5m2(R x) {
  return convert<uint8_t>(round_magnitude<2, 15>(x, 0x7bu, 0x7cu, 0x7eu) | sign_of(x) >> 24);
}
}  // namespace core
