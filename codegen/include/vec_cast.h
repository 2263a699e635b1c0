// Conversions between all element types.
#pragma once
#include "vec_narrow.h"
namespace core {
template <class T, class R> VDEV Like<float, R> read(R x) {  // x: the bits of T
  using U = Like<uint32_t, R>;
  using F = Like<float, R>;
  if constexpr (SAME<T, f16>) return read_f16(x);
  else if constexpr (SAME<T, bf16>) return as<F>(convert<uint32_t>(x) << 16);
  else if constexpr (SAME<T, f8e5m2>) return read_f16(convert<uint16_t>(convert<uint32_t>(x) << 8));
  else {
    const U u = convert<uint32_t>(x), m = u & 0x7fu;
    const U r = as<U>(read_magnitude<3, 7>(m));
    return as<F>((m == 0x7fu ? fill<U>(0x7fc00000u) : r) | (u & 0x80u) << 24);
  }
}
template <class T, class R> VDEV auto round_to(R x) {  // R: float
  if constexpr (SAME<T, f16>) return round_f16(x);
  else if constexpr (SAME<T, bf16>) return round_bf16(x);
  else if constexpr (SAME<T, f8e4m3>) return round_f8e4m3(x);
  else return round_f8e5m2(x);
}

// Float to integer: towards zero, saturating, NaN to 0. S of up to 4 bytes from float goes by way of int32_t. What has no
// whole part is not converted: where the integer becomes a float again, g++ 12 truncates instead, and trunc(-0.5) is -0.
template <class S, class R> VDEV Like<S, R> saturate(R x) {
  using F = Element<R>;
  const auto whole = (x >= (F)1) | (x <= (F)-1);
  if constexpr (sizeof(S) < 4) {
    const R lo = fill<R>((F)LEAST<S>), hi = fill<R>((F)MOST<S>), c = x < lo ? lo : x > hi ? hi : x;
    return convert<S>(convert<int32_t>(whole ? c : R{}));
  } else {
    constexpr F limit = (F)(sizeof(S) == 8 ? 9223372036854775808.0 : 2147483648.0);
    const auto inside = whole & (x >= -limit) & (x < limit);
    const Like<S, R> r = convert<S>(inside ? x : R{}), most = fill<Like<S, R>>(MOST<S>);
    const Like<S, R> s = mask_like<S>(x >= limit) ? most : mask_like<S>(x < -limit) ? fill<Like<S, R>>(LEAST<S>) : r;
    return s;
  }
}
template <class U, class T, class R> VDEV auto convert_lanes(R x) {
  if constexpr (SAME<T, U>) return x;
  else if constexpr (NARROW<T>) return convert_lanes<U, float>(read<T>(x));
  else if constexpr (NARROW<U>) return round_to<U>(convert_lanes<float, T>(x));
  else if constexpr (SAME<T, boolean>) return convert_lanes<U, int32_t>(truth(x));
  else if constexpr (SAME<U, boolean>) return boolean_lanes(x != (T)0);
  else if constexpr (FLOATING<T> && !FLOATING<U>) return saturate<U>(x);
  else if constexpr (FLOATING<U> && sizeof(T) < 4) return convert<U>(convert<int32_t>(x));
  else return convert<U>(x);
}
}  // namespace core
