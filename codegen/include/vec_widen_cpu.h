// Lanes made wider by one instruction of x86-64, where g++ would widen halves of a register and join them.
#pragma once
namespace core {
// From lanes of E to lanes of twice their bytes or more; integers keep their value, by the sign of E.
template <class S, class E, int L> struct Widening { static constexpr bool KNOWN = false; };
#define VEC_WIDENING(S, E, L, value) template <> struct Widening<S, E, L> { \
  static constexpr bool KNOWN = true; \
  static VDEV Reg<S, L> of(Reg<E, L> x) { return (Reg<S, L>)value; } };
#define VEC_WIDENINGS(BYTES, E, L, value) \
  VEC_WIDENING(Int<BYTES>, E, L, value) VEC_WIDENING(Uint<BYTES>, E, L, value)
#if defined(VEC_AVX512) && __has_builtin(__builtin_ia32_pmovzxwd512_mask)
VEC_WIDENINGS(4, uint16_t, 16, __builtin_ia32_pmovzxwd512_mask((Reg<short, 16>)x, Reg<int, 16>{}, (unsigned short)-1))
VEC_WIDENINGS(4, int16_t, 16, __builtin_ia32_pmovsxwd512_mask((Reg<short, 16>)x, Reg<int, 16>{}, (unsigned short)-1))
VEC_WIDENINGS(4, uint8_t, 16, __builtin_ia32_pmovzxbd512_mask((Reg<char, 16>)x, Reg<int, 16>{}, (unsigned short)-1))
VEC_WIDENINGS(4, int8_t, 16, __builtin_ia32_pmovsxbd512_mask((Reg<char, 16>)x, Reg<int, 16>{}, (unsigned short)-1))
VEC_WIDENINGS(8, uint32_t, 8, __builtin_ia32_pmovzxdq512_mask((Reg<int, 8>)x, Reg<long long, 8>{}, (unsigned char)-1))
VEC_WIDENINGS(8, int32_t, 8, __builtin_ia32_pmovsxdq512_mask((Reg<int, 8>)x, Reg<long long, 8>{}, (unsigned char)-1))
VEC_WIDENING(double, float, 8, __builtin_ia32_cvtps2pd512_mask(x, Reg<double, 8>{}, (unsigned char)-1, 4))
VEC_WIDENING(double, int32_t, 8, __builtin_ia32_cvtdq2pd512_mask((Reg<int, 8>)x, Reg<double, 8>{}, (unsigned char)-1))
#endif
#if defined(__AVX2__) && __has_builtin(__builtin_ia32_pmovzxwd256)
VEC_WIDENINGS(4, uint16_t, 8, __builtin_ia32_pmovzxwd256((Reg<short, 8>)x))
VEC_WIDENINGS(4, int16_t, 8, __builtin_ia32_pmovsxwd256((Reg<short, 8>)x))
VEC_WIDENINGS(8, uint32_t, 4, __builtin_ia32_pmovzxdq256((Reg<int, 4>)x))
VEC_WIDENINGS(8, int32_t, 4, __builtin_ia32_pmovsxdq256((Reg<int, 4>)x))
#endif
}  // namespace core
