// The operations of the language over Vec, once for both targets; the target header comes first.
#pragma once
#include "vec_coefficients.h"
#include "vec_exp.h"
#include "vec_log.h"
#include "vec_trig.h"
#include "vec_arc.h"
#include "vec_erf.h"
#include "vec_pow.h"
#include "vec_philox.h"

VEC_MAP1(neg_, core::negate) VEC_MAP1(abs_, core::absolute) VEC_MAP1(sign_, core::sign) VEC_MAP1(relu_, core::relu)
VEC_MAP1(square_, core::square) VEC_MAP1(sqrt_, core::sqrt) VEC_MAP1(reciprocal_, core::reciprocal)
VEC_MAP1(floor_, core::floor) VEC_MAP1(ceil_, core::ceil) VEC_MAP1(trunc_, core::trunc) VEC_MAP1(round_, core::round)
VEC_MAP2(add_, core::add) VEC_MAP2(sub_, core::sub) VEC_MAP2(mul_, core::mul) VEC_MAP2(div_, core::div)
VEC_MAP2(floordiv_, core::floordiv) VEC_MAP2(fmod_, core::any_fmod) VEC_MAP2(remainder_, core::any_remainder)
VEC_MAP2(maximum_, core::maximum) VEC_MAP2(minimum_, core::minimum)
VEC_MAP3(fma_, core::fma) VEC_MAP3(clamp_, core::clamp) VEC_MAP3(lerp_, core::lerp)
VEC_TEST2(eq_, core::eq) VEC_TEST2(ne_, core::ne) VEC_TEST2(lt_, core::lt)
VEC_TEST2(le_, core::le) VEC_TEST2(gt_, core::gt) VEC_TEST2(ge_, core::ge)
VEC_TEST1(isnan_, core::isnan) VEC_TEST1(isfinite_, core::isfinite) VEC_TEST1(isinf_, core::isinf)
VEC_TEST1(isposinf_, core::isposinf) VEC_TEST1(isneginf_, core::isneginf) VEC_TEST1(signbit_, core::signbit)
VEC_MAP2(bitwise_and_, core::bit_and) VEC_MAP2(bitwise_or_, core::bit_or) VEC_MAP2(bitwise_xor_, core::bit_xor)
VEC_MAP1(bitwise_not_, core::bit_not)
VEC_MAP2(logical_and_, core::bit_and) VEC_MAP2(logical_or_, core::bit_or) VEC_MAP2(logical_xor_, core::bit_xor)
VEC_MAP1(logical_not_, core::bit_not)
VEC_MAP2(shift_left_, core::shift_left) VEC_MAP2(shift_right_, core::shift_right)
VEC_MAP2(shift_right_logical_, core::shift_right_logical)

VEC_MATH1(exp_, core::exp) VEC_MATH1(exp2_, core::exp2) VEC_MATH1(expm1_, core::expm1) VEC_MATH1(sigmoid_, core::sigmoid)
VEC_MATH1(sinh_, core::sinh) VEC_MATH1(cosh_, core::cosh) VEC_MATH1(tanh_, core::tanh) VEC_MATH1(rsqrt_, core::rsqrt)
VEC_MATH1(log_, core::log) VEC_MATH1(log2_, core::log2) VEC_MATH1(log10_, core::log10) VEC_MATH1(log1p_, core::log1p)
VEC_MATH1(asinh_, core::asinh) VEC_MATH1(acosh_, core::acosh) VEC_MATH1(atanh_, core::atanh)
VEC_MATH1(sin_, core::sin) VEC_MATH1(cos_, core::cos) VEC_MATH1(tan_, core::tan)
VEC_MATH1(asin_, core::asin) VEC_MATH1(acos_, core::acos) VEC_MATH1(atan_, core::atan) VEC_MATH2(atan2_, core::atan2)
VEC_MATH1(erf_, core::erf) VEC_MATH1(erfc_, core::erfc) VEC_MATH2(pow_, core::pow)

// Lanes start, start + 1, ... converted to T.
template <class T, int W> VDEV Vec<T, W> iota_(int64_t start) {
  if constexpr (SAME<T, int32_t>) return add_(cast<T>(count<W>()), splat<W>((T)start));
  else return cast<T>(add_(count<W>(), splat<W>(start)));
}
