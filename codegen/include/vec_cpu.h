// Vec<T, W> on a CPU, over GCC vector extensions (g++ >= 10, clang). README.md says how the files stack.
//
// A Vec is one register up to REGISTER<T> lanes and two halves beyond: a tree of structs, since g++ keeps an array member
// in memory where a variable indexes it. W = 1 is a plain scalar, so that one spelling of an operation serves both.
#pragma once
#include <stdint.h>
#include <string.h>
#pragma GCC diagnostic ignored "-Wpsabi"
#define VDEV __attribute__((always_inline)) inline
#define VCOLD inline __attribute__((noinline, cold))  // a path that is seldom taken
#define VCOLD_LANES VCOLD                                  // the lanes of a register that take such a path
#define VTABLE static const
#define RESTRICT __restrict
typedef long idx_t;
#include "vec_elements.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#define VEC_AVX512 1
constexpr int REGISTER_BYTES = 64;
#elif defined(__AVX2__)
constexpr int REGISTER_BYTES = 32;
#else
constexpr int REGISTER_BYTES = 16;
#endif

// Lanes of one register: as many 4-byte elements as fit, so that a narrow type has one lane per lane of its compute type.
template <class T> constexpr int REGISTER = REGISTER_BYTES / (sizeof(T) == 8 ? 8 : 4);
template <int W, class... T> constexpr bool WIDE = ((W > REGISTER<T>) || ...);

// What a lane of T holds: narrow floats their bits; a boolean 0 or -1 in 32 bits, a mask, which compilers fold with the
// comparison that it came from.
template <class T> struct LaneOf { using type = T; };
template <> struct LaneOf<f16> { using type = uint16_t; };
template <> struct LaneOf<bf16> { using type = uint16_t; };
template <> struct LaneOf<f8e4m3> { using type = uint8_t; };
template <> struct LaneOf<f8e5m2> { using type = uint8_t; };
template <> struct LaneOf<boolean> { using type = int32_t; };
template <class T> using Lane = typename LaneOf<T>::type;

template <class S, int L> struct RegOf { typedef S type __attribute__((vector_size(sizeof(S) * L))); };
template <class S> struct RegOf<S, 1> { using type = S; };
template <class S, int L> using Reg = typename RegOf<S, L>::type;

template <class T, int W> struct Vec;
template <class T, int W, bool HALVES> struct Storage { Reg<Lane<T>, W> v; };
template <class T, int W> struct Storage<T, W, true> { Vec<T, W / 2> lo, hi; };
template <class T, int W> struct Vec : Storage<T, W, WIDE<W, T>> {};

// ---- registers. R is a vector or, of one lane, a scalar; the functions of namespace core work on either.
template <class R> struct Plain { using type = R; };
template <class R> struct Plain<R&> { using type = R; };
template <class R> struct Plain<R&&> { using type = R; };
template <class R> struct Plain<const R&> { using type = R; };
template <class S> constexpr bool SCALAR = SAME<S, bool>;
#define SCALARS(S) template <> constexpr bool SCALAR<S> = true;
SCALARS(float) SCALARS(double) SCALARS(int8_t) SCALARS(int16_t) SCALARS(int32_t) SCALARS(int64_t)
SCALARS(uint8_t) SCALARS(uint16_t) SCALARS(uint32_t) SCALARS(uint64_t)
#undef SCALARS
template <class R, bool S> struct ElementOf { using type = R; };
template <class R> struct ElementOf<R, false> { using type = typename Plain<decltype(R{}[0])>::type; };
template <class R> using Element = typename ElementOf<R, SCALAR<R>>::type;
template <class R> constexpr int LANES = (int)(sizeof(R) / sizeof(Element<R>));
template <class S, class R> using Like = Reg<S, LANES<R>>;                        // lanes of S, as many as R has
template <class R> using IntLike = Like<Int<sizeof(Element<R>)>, R>;
template <class R> using UintLike = Like<Uint<sizeof(Element<R>)>, R>;
// The type in which integers wrap: for a scalar at least `unsigned`, since C promotes.
template <class R> using WrapLike = If<SCALAR<R>, Uint<sizeof(Element<R>) == 8 ? 8 : 4>, UintLike<R>>;

#include "vec_widen_cpu.h"
namespace core {
// The bits of x as another type of the same size.
template <class To, class R> VDEV To as(R x) {
  static_assert(sizeof(To) == sizeof(R));
  To y;
  memcpy(&y, &x, sizeof y);
  return y;
}
// Each lane converted as C converts. Between integers by doubling and halving: g++ takes other ratios apart into scalars.
template <class S, class R> VDEV Like<S, R> convert(R x) {
  using E = Element<R>;
  if constexpr (SCALAR<R>) return (S)x;
  else if constexpr (SAME<S, E>) return x;
  else if constexpr (Widening<S, E, LANES<R>>::KNOWN) return Widening<S, E, LANES<R>>::of(x);
  else if constexpr ((S)0.5 != 0 || (E)0.5 != 0) return __builtin_convertvector(x, Like<S, R>);
  else if constexpr (sizeof(S) == sizeof(E)) return (Like<S, R>)x;
  else if constexpr (sizeof(S) > 2 * sizeof(E)) {
    return convert<S>(convert<If<UNSIGNED<E>, Uint<2 * sizeof(E)>, Int<2 * sizeof(E)>>>(x));
  } else if constexpr (sizeof(E) > 2 * sizeof(S)) return convert<S>(convert<Int<sizeof(E) / 2>>(x));
  else return __builtin_convertvector(x, Like<S, R>);
}
template <class R> VDEV Element<R> lane(const R& x, int l) {
  if constexpr (SCALAR<R>) return x;
  else return x[l];
}
template <class R> VDEV void set_lane(R& x, int l, Element<R> y) {
  if constexpr (SCALAR<R>) x = y;
  else x[l] = y;
}
template <class R, class S> VDEV R fill(S x) {  // without `x - 0`, which would quiet a NaN
  if constexpr (SCALAR<R>) return x;
  else return as<R>((UintLike<R>){} + as<Uint<sizeof(S)>>(x));
}
template <class F, class R, class... A> VDEV R each_lane(F f, R x, A... a) {
  if constexpr (SCALAR<R>) return f(x, a...);
  else {
    R r;
    for (int l = 0; l < LANES<R>; l++) r[l] = f(x[l], a[l]...);
    return r;
  }
}
// Registers cut and joined. Before g++ 12 there is no shuffle that changes the number of lanes: by way of memory.
#if __has_builtin(__builtin_shufflevector) && !defined(VEC_NO_SHUFFLES)
template <int... I> struct Indices {};
#if defined(__clang__)
template <class, int... I> struct Sequence { using type = Indices<I...>; };
template <int N> using FirstIndices = typename __make_integer_seq<Sequence, int, N>::type;
#else
template <int N> using FirstIndices = Indices<__integer_pack(N)...>;
#endif
template <int FIRST, class R, int... I>
VDEV auto part(R x, Indices<I...>) { return __builtin_shufflevector(x, x, (FIRST + I)...); }
template <int FIRST, int L, class R> VDEV Reg<Element<R>, L> part(R x) { return part<FIRST>(x, FirstIndices<L>{}); }
template <class R, int... I> VDEV auto joined(R a, R b, Indices<I...>) { return __builtin_shufflevector(a, b, I...); }
template <class R> VDEV Reg<Element<R>, 2 * LANES<R>> joined(R a, R b) {
#if defined(VEC_AVX512) && __has_builtin(__builtin_ia32_si512_256si) && __has_builtin(__builtin_ia32_inserti64x4_mask)
  if constexpr (sizeof(R) == 32) {  // for which g++ takes a shuffle of bytes by a table
    const auto low = (Reg<long long, 8>)__builtin_ia32_si512_256si((Reg<int, 8>)a);
    return (Reg<Element<R>, 2 * LANES<R>>)__builtin_ia32_inserti64x4_mask(low, (Reg<long long, 4>)b, 1, low, (unsigned char)-1);
  }
#endif
  return joined(a, b, FirstIndices<2 * LANES<R>>{});
}
template <int TIMES, class R, int... I> VDEV auto repeated(R x, Indices<I...>) { return __builtin_shufflevector(x, x, (I / TIMES)...); }
template <class R, int... I> VDEV auto every_second(R x, Indices<I...>) { return __builtin_shufflevector(x, x, (2 * I)...); }
#define VEC_SHUFFLES 1
#else
template <int FIRST, int L, class R> VDEV Reg<Element<R>, L> part(R x) {
  Reg<Element<R>, L> r;
  memcpy(&r, (const char*)&x + FIRST * sizeof(Element<R>), sizeof r);
  return r;
}
template <class R> VDEV Reg<Element<R>, 2 * LANES<R>> joined(R a, R b) {
  Reg<Element<R>, 2 * LANES<R>> r;
  memcpy(&r, &a, sizeof a);
  memcpy((char*)&r + sizeof a, &b, sizeof b);
  return r;
}
#endif
// At least 16 bytes, by repeating the lanes; and back.
template <class R> VDEV auto widened(R x) {
  if constexpr (SCALAR<R>) return fill<Reg<R, 16 / sizeof(R)>>(x);
  else if constexpr (sizeof(R) < 16) return joined(x, x);
  else return x;
}
template <class R, class X> VDEV R narrowed(X x) {
  if constexpr (SCALAR<R>) return x[0];
  else if constexpr (sizeof(R) < sizeof(X)) return part<0, LANES<R>>(x);
  else return x;
}
// A mask is what a comparison of registers gives: bool, or lanes of 0 and -1. The same mask for registers of lanes of S:
template <class S, class M> VDEV auto mask_like(M m) {
  if constexpr (SCALAR<M>) return m;
#ifdef VEC_SHUFFLES  // each half of a lane is the mask as well
  else if constexpr (sizeof(S) == 2 * sizeof(Element<M>)) {
    return (Like<Int<sizeof(S)>, M>)repeated<2>(m, FirstIndices<2 * LANES<M>>{});
  } else if constexpr (2 * sizeof(S) == sizeof(Element<M>)) {
    return every_second((Reg<Int<sizeof(S)>, 2 * LANES<M>>)m, FirstIndices<LANES<M>>{});
  }
#endif
  else return convert<Int<sizeof(S)>>(m);
}
// The lanes of a boolean register: from a mask, to a mask for lanes of S, to 0 and 1.
template <class M> VDEV auto boolean_lanes(M m) {
  if constexpr (SCALAR<M>) return -(int32_t)(m != 0);
  else return mask_like<int32_t>(m);
}
template <class R> VDEV R truth(R x) { return x & 1; }
template <class T, class R> VDEV R operand(R x) {
  if constexpr (SAME<T, boolean>) return truth(x);
  else return x;
}
}  // namespace core
#include "vec_instructions.h"
#include "vec_int.h"
#include "vec_float.h"
#include "vec_narrow.h"
#include "vec_narrow_cpu.h"
#include "vec_cast.h"

// ---- halves
template <class T, int W> VDEV Vec<T, W / 2> low(const Vec<T, W>& x) {
  if constexpr (WIDE<W, T>) return x.lo;
  else if constexpr (W == 2) return {x.v[0]};
  else return {core::part<0, W / 2>(x.v)};
}
template <class T, int W> VDEV Vec<T, W / 2> high(const Vec<T, W>& x) {
  if constexpr (WIDE<W, T>) return x.hi;
  else if constexpr (W == 2) return {x.v[1]};
  else return {core::part<W / 2, W / 2>(x.v)};
}
template <class T, int H> VDEV Vec<T, 2 * H> join(const Vec<T, H>& a, const Vec<T, H>& b) {
  if constexpr (WIDE<2 * H, T>) return {a, b};
  else if constexpr (H == 1) return {Reg<Lane<T>, 2>{a.v, b.v}};
  else return {core::joined(a.v, b.v)};
}

// ---- lanes
template <class T> VDEV T bits(uint64_t u) { T x; memcpy(&x, &u, sizeof x); return x; }
template <class T> VDEV Lane<T> to_lane(T x) {
  if constexpr (SAME<T, boolean>) return -(int32_t)x.u;
  else return core::as<Lane<T>>(x);
}
template <class T> VDEV T from_lane(Lane<T> x) {
  if constexpr (SAME<T, boolean>) return boolean{(uint8_t)(x & 1)};
  else return core::as<T>(x);
}
template <class T, int W> VDEV T get(const Vec<T, W>& x, int l) {
  if constexpr (WIDE<W, T>) return l < W / 2 ? get(x.lo, l) : get(x.hi, l - W / 2);
  else return from_lane<T>(core::lane(x.v, l));
}
template <class T, int W> VDEV void set(Vec<T, W>& x, int l, T y) {
  if constexpr (WIDE<W, T>) { if (l < W / 2) set(x.lo, l, y); else set(x.hi, l - W / 2, y); }
  else core::set_lane(x.v, l, to_lane(y));
}
template <int W, class T> VDEV Vec<T, W> splat(T x) {
  if constexpr (WIDE<W, T>) { const auto h = splat<W / 2>(x); return {h, h}; }
  else return {core::fill<Reg<Lane<T>, W>>(to_lane(x))};
}
template <int W, class T> VDEV Vec<T, W> splat(const Vec<T, 1>& x) { return splat<W>(from_lane<T>(x.v)); }

// ---- an operation on registers applied to Vecs
#define VEC_MAP1(name, op) template <class T, int W> VDEV Vec<T, W> name(const Vec<T, W>& a) { \
  if constexpr (WIDE<W, T>) return join(name(low(a)), name(high(a))); else return {op(a.v)}; }
#define VEC_MAP2(name, op) template <class T, int W> VDEV Vec<T, W> name(const Vec<T, W>& a, const Vec<T, W>& b) { \
  if constexpr (WIDE<W, T>) return join(name(low(a), low(b)), name(high(a), high(b))); else return {op(a.v, b.v)}; }
#define VEC_MAP3(name, op) template <class T, int W> \
VDEV Vec<T, W> name(const Vec<T, W>& a, const Vec<T, W>& b, const Vec<T, W>& c) { \
  if constexpr (WIDE<W, T>) return join(name(low(a), low(b), low(c)), name(high(a), high(b), high(c))); \
  else return {op(a.v, b.v, c.v)}; }
// Operations with choices in them: fewer lanes go through a register of 16 bytes, where no choice is a branch.
#define VEC_MATH1(name, op) template <class T, int W> VDEV Vec<T, W> name(const Vec<T, W>& a) { \
  if constexpr (WIDE<W, T>) return join(name(low(a)), name(high(a))); \
  else return {core::narrowed<Reg<T, W>>(op(core::widened(a.v)))}; }
#define VEC_MATH2(name, op) template <class T, int W> VDEV Vec<T, W> name(const Vec<T, W>& a, const Vec<T, W>& b) { \
  if constexpr (WIDE<W, T>) return join(name(low(a), low(b)), name(high(a), high(b))); \
  else return {core::narrowed<Reg<T, W>>(op(core::widened(a.v), core::widened(b.v)))}; }
// The operation gives a mask.
#define VEC_TEST1(name, op) template <class T, int W> VDEV Vec<boolean, W> name(const Vec<T, W>& a) { \
  if constexpr (WIDE<W, T>) return join(name(low(a)), name(high(a))); else return {core::boolean_lanes(op(a.v))}; }
#define VEC_TEST2(name, op) template <class T, int W> VDEV Vec<boolean, W> name(const Vec<T, W>& a, const Vec<T, W>& b) { \
  if constexpr (WIDE<W, T>) return join(name(low(a), low(b)), name(high(a), high(b))); \
  else return {core::boolean_lanes(op(core::operand<T>(a.v), core::operand<T>(b.v)))}; }
template <class T, int W> VDEV Vec<T, W> where_(const Vec<boolean, W>& c, const Vec<T, W>& a, const Vec<T, W>& b) {
  if constexpr (WIDE<W, T>) return join(where_(low(c), low(a), low(b)), where_(high(c), high(a), high(b)));
  else return {core::mask_like<Lane<T>>(c.v) ? a.v : b.v};
}
// f: registers of T to registers of U.
template <class U, class F, class T, int W> VDEV Vec<U, W> apply(F f, const Vec<T, W>& x) {
  if constexpr (WIDE<W, T, U>) return join(apply<U>(f, low(x)), apply<U>(f, high(x)));
  else return {f(x.v)};
}
#include "vec_round_cpu.h"
template <class U, class T, int W> VDEV Vec<U, W> cast(const Vec<T, W>& x) {
  if constexpr (SAME<T, U>) return x;
  else if constexpr (SAME<T, float> && SAME<U, bf16>) return round_bf16(x);
  else return apply<U>([](auto r) { return core::convert_lanes<U, T>(r); }, x);
}
// Of floats that are bf16 all of them.
template <class U, int W> VDEV Vec<U, W> cast_exact(const Vec<float, W>& x) {
#if defined(VEC_AVX512) && defined(VEC_SHUFFLES)
  if constexpr (WIDE<W, float>) return upper_halves(x);
#endif
  return apply<U>([](auto r) { return core::convert<uint16_t>(core::as<Like<uint32_t, decltype(r)>>(r) >> 16); }, x);
}
VTABLE int64_t COUNT[64] = {
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
    32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
#include "vec_memory_cpu.h"
#include "vec_transpose_cpu.h"
template <int W> VDEV Vec<int64_t, W> count() {  // 0, 1, 2, ...
  if constexpr (W <= 64) return load<W, 1>(COUNT);
  else { const auto half = count<W / 2>(); return {half, add_(half, splat<W / 2>((int64_t)(W / 2)))}; }
}
#include "vec_math.h"
#include "vec_pairs_cpu.h"
#include "vec_divided_cpu.h"
