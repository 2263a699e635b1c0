// Matrix products by the BLAS library that the kernel is linked with (codegen/libraries.py), on the calling thread.
#pragma once
#include "vec_cpu.h"
// Where a tensor would start of which `part` holds the elements from `offset` on.
template <class T>
static inline const T* before(const T* part, idx_t offset) { return (const T*)((uintptr_t)part - (uintptr_t)offset * sizeof(T)); }
extern "C" {
void scipy_cblas_sgemm(int order, int a_turned, int b_turned, int m, int n, int k, float alpha, const float* a, int lda,
                       const float* b, int ldb, float beta, float* c, int ldc);
void scipy_cblas_dgemm(int order, int a_turned, int b_turned, int m, int n, int k, double alpha, const double* a, int lda,
                       const double* b, int ldb, double beta, double* c, int ldc);
}
// Row-major C[m, n] = A[m, k] B[k, n], or += where `adds`; an operand that is `turned` lies in memory as its transpose.
// C is not read unless `adds`.
static inline void gemm(bool a_turned, bool b_turned, idx_t m, idx_t n, idx_t k, const float* a, idx_t lda, const float* b,
                        idx_t ldb, float* c, idx_t ldc, bool adds) {
  if (m > 0 && n > 0)
    scipy_cblas_sgemm(101, a_turned ? 112 : 111, b_turned ? 112 : 111, (int)m, (int)n, (int)k, 1.0f, a, (int)lda, b, (int)ldb,
                      adds ? 1.0f : 0.0f, c, (int)ldc);
}
static inline void gemm(bool a_turned, bool b_turned, idx_t m, idx_t n, idx_t k, const double* a, idx_t lda, const double* b,
                        idx_t ldb, double* c, idx_t ldc, bool adds) {
  if (m > 0 && n > 0)
    scipy_cblas_dgemm(101, a_turned ? 112 : 111, b_turned ? 112 : 111, (int)m, (int)n, (int)k, 1.0, a, (int)lda, b, (int)ldb,
                      adds ? 1.0 : 0.0, c, (int)ldc);
}
