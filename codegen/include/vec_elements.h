// Element types, once for both targets. The target header has declared the fixed-width integers and VDEV before this.
#pragma once
struct f16 { uint16_t u; };
struct bf16 { uint16_t u; };
struct f8e4m3 { uint8_t u; };
struct f8e5m2 { uint8_t u; };
struct boolean { uint8_t u; };  // 0 or 1

template <class A, class B> constexpr bool SAME = false;
template <class A> constexpr bool SAME<A, A> = true;
// Narrow floats are only stored: arithmetic on them happens in float.
template <class T> constexpr bool NARROW = SAME<T, f16> || SAME<T, bf16> || SAME<T, f8e4m3> || SAME<T, f8e5m2>;
template <class T> constexpr bool FLOATING = SAME<T, float> || SAME<T, double>;
template <class T> constexpr bool UNSIGNED = (T)-1 > (T)0;
template <bool C, class A, class B> struct Choose { using type = A; };
template <class A, class B> struct Choose<false, A, B> { using type = B; };
template <bool C, class A, class B> using If = typename Choose<C, A, B>::type;
template <int BYTES> using Int = If<BYTES == 8, int64_t, If<BYTES == 4, int32_t, If<BYTES == 2, int16_t, int8_t>>>;
template <int BYTES> using Uint = If<BYTES == 8, uint64_t, If<BYTES == 4, uint32_t, If<BYTES == 2, uint16_t, uint8_t>>>;

// Limits of a scalar type, by its bits.
template <class S> constexpr int BITS = 8 * (int)sizeof(S);
template <class S> constexpr int MANTISSA = sizeof(S) == 8 ? 52 : 23;  // of float and double
template <class S> constexpr int BIAS = sizeof(S) == 8 ? 1023 : 127;
template <class S> constexpr S LEAST = UNSIGNED<S> ? (S)0 : (S)((Uint<sizeof(S)>)1 << (BITS<S> - 1));
template <class S> constexpr S MOST = UNSIGNED<S> ? (S)-1 : (S)~LEAST<S>;
