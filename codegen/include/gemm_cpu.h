// Matrix products on the calling thread: by the library that the kernel is linked with (codegen/hardware/libraries.py), or by
// code of our own.
#pragma once
#include "gemm_amx_cpu.h"
#include "gemm_packed_cpu.h"
#include "gemm_pairs_cpu.h"
#include "gemm_split_cpu.h"
using packed::least;
// Where a tensor would start of which `part` holds the elements from `offset` on.
template <class T>
static inline const T* before(const T* part, idx_t offset) { return (const T*)((uintptr_t)part - (uintptr_t)offset * sizeof(T)); }
extern "C" {
void scipy_cblas_sgemm(int order, int a_turned, int b_turned, int m, int n, int k, float alpha, const float* a, int lda,
                       const float* b, int ldb, float beta, float* c, int ldc);
void scipy_cblas_dgemm(int order, int a_turned, int b_turned, int m, int n, int k, double alpha, const double* a, int lda,
                       const double* b, int ldb, double beta, double* c, int ldc);
// Of MKL these, which PyTorch's library exports as well: column by column, extents and factors by address.
void sgemm_(const char* a_turned, const char* b_turned, const int* m, const int* n, const int* k, const float* alpha,
            const float* a, const int* lda, const float* b, const int* ldb, const float* beta, float* c, const int* ldc);
void dgemm_(const char* a_turned, const char* b_turned, const int* m, const int* n, const int* k, const double* alpha,
            const double* a, const int* lda, const double* b, const int* ldb, const double* beta, double* c, const int* ldc);
void cblas_gemm_bf16bf16f32(int order, int a_turned, int b_turned, int m, int n, int k, float alpha, const unsigned short* a,
                            int lda, const unsigned short* b, int ldb, float beta, float* c, int ldc);
int MKL_Set_Num_Threads_Local(int threads);
}
constexpr int ROW_BY_ROW = 101, AS_IT_IS = 111, TURNED = 112;  // of CBLAS
// Libraries: row-major C[m, n] = A[m, k] B[k, n], or += where `adds`, of one type.
struct OpenBlas {
  static void product(bool a_turned, bool b_turned, idx_t m, idx_t n, idx_t k, const float* a, idx_t lda, const float* b,
                      idx_t ldb, float* c, idx_t ldc, bool adds) {
    scipy_cblas_sgemm(ROW_BY_ROW, a_turned ? TURNED : AS_IT_IS, b_turned ? TURNED : AS_IT_IS, (int)m, (int)n, (int)k, 1.0f, a,
                      (int)lda, b, (int)ldb, adds ? 1.0f : 0.0f, c, (int)ldc);
  }
  static void product(bool a_turned, bool b_turned, idx_t m, idx_t n, idx_t k, const double* a, idx_t lda, const double* b,
                      idx_t ldb, double* c, idx_t ldc, bool adds) {
    scipy_cblas_dgemm(ROW_BY_ROW, a_turned ? TURNED : AS_IT_IS, b_turned ? TURNED : AS_IT_IS, (int)m, (int)n, (int)k, 1.0, a,
                      (int)lda, b, (int)ldb, adds ? 1.0 : 0.0, c, (int)ldc);
  }
};
struct Mkl {
  // While it lives, MKL keeps to the calling thread, which may be one that calls it for others with more.
  struct Alone {
    const int before = MKL_Set_Num_Threads_Local(1);
    ~Alone() { MKL_Set_Num_Threads_Local(before); }
  };
  // Of columns C is the product of B and A.
  static void product(bool a_turned, bool b_turned, idx_t m, idx_t n, idx_t k, const float* a, idx_t lda, const float* b,
                      idx_t ldb, float* c, idx_t ldc, bool adds) {
    const Alone alone;
    const int rows = (int)m, columns = (int)n, deep = (int)k, xld = (int)lda, yld = (int)ldb, zld = (int)ldc;
    const float one = 1, kept = adds;
    sgemm_(b_turned ? "T" : "N", a_turned ? "T" : "N", &columns, &rows, &deep, &one, b, &yld, a, &xld, &kept, c, &zld);
  }
  static void product(bool a_turned, bool b_turned, idx_t m, idx_t n, idx_t k, const double* a, idx_t lda, const double* b,
                      idx_t ldb, double* c, idx_t ldc, bool adds) {
    const Alone alone;
    const int rows = (int)m, columns = (int)n, deep = (int)k, xld = (int)lda, yld = (int)ldb, zld = (int)ldc;
    const double one = 1, kept = adds;
    dgemm_(b_turned ? "T" : "N", a_turned ? "T" : "N", &columns, &rows, &deep, &one, b, &yld, a, &xld, &kept, c, &zld);
  }
  // Denormals may count as 0 there.
  static void product(bool a_turned, bool b_turned, idx_t m, idx_t n, idx_t k, const bf16* a, idx_t lda, const bf16* b,
                      idx_t ldb, float* c, idx_t ldc) {
    const Alone alone;
    cblas_gemm_bf16bf16f32(ROW_BY_ROW, a_turned ? TURNED : AS_IT_IS, b_turned ? TURNED : AS_IT_IS, (int)m, (int)n, (int)k, 1.0f,
                           &a->u, (int)lda, &b->u, (int)ldb, 0.0f, c, (int)ldc);
  }
};

// ---- operands and results of other types than the sum's, block by block in a cache
constexpr idx_t BLOCK_M = 384, BLOCK_N = 384, BLOCK_K = 256, BLOCK_PAD = 16;  // rows a power of two apart share cache sets
// `rows` rows of `columns` elements, each converted.
template <class T, class U>
static inline void convert_rows(idx_t rows, idx_t columns, const T* from, idx_t from_stride, U* to, idx_t to_stride) {
  for (idx_t i = 0; i < rows; i++, from += from_stride, to += to_stride) {
    idx_t j = 0;
    for (; j + 16 <= columns; j += 16) store<16, 1>(to + j, cast<U>(load<16, 1>(from + j)));
    if (j < columns) store_masked<16, 1>(to + j, cast<U>(load_masked<16, 1>(from + j, columns - j)), columns - j);
  }
}
// Parts of a matrix as the library reads them: where they lie, or converted into `block`, of the sums' type.
template <class Sum, class T, idx_t ROWS, idx_t COLUMNS, bool IN_PLACE = SAME<T, Sum>> struct Operand {
  const T* from;
  idx_t from_ld, ld;  // ld: of what `part` gives
  bool turned;
  alignas(64) Sum block[ROWS > COLUMNS ? ROWS * (COLUMNS + BLOCK_PAD) : COLUMNS * (ROWS + BLOCK_PAD)];
  Operand(const T* from, idx_t from_ld, bool turned)
      : from(from), from_ld(from_ld), ld((turned ? ROWS : COLUMNS) + BLOCK_PAD), turned(turned) {}
  const Sum* part(idx_t i, idx_t j, idx_t rows, idx_t columns) {
    const T* const first = from + (turned ? j * from_ld + i : i * from_ld + j);
    convert_rows(turned ? columns : rows, turned ? rows : columns, first, from_ld, block, ld);
    return block;
  }
};
template <class Sum, class T, idx_t ROWS, idx_t COLUMNS> struct Operand<Sum, T, ROWS, COLUMNS, true> {
  const T* from;
  idx_t ld;
  bool turned;
  Operand(const T* from, idx_t ld, bool turned) : from(from), ld(ld), turned(turned) {}
  const T* part(idx_t i, idx_t j, idx_t, idx_t) const { return from + (turned ? j * ld + i : i * ld + j); }
};
// Row-major C[m, n] = A[m, k] B[k, n], or += where `adds`; an operand that is `turned` lies in memory as its transpose.
// C is not read unless `adds`. Sum: what sums run in, which holds all values of A and B. C of another type is converted from
// them (and `adds` is false).
template <class Sum, class Library = OpenBlas, class A, class B, class C>
static inline void gemm(bool a_turned, bool b_turned, idx_t m, idx_t n, idx_t k, const A* a, idx_t lda, const B* b, idx_t ldb,
                        C* c, idx_t ldc, bool adds) {
  constexpr bool CONVERTS = !SAME<C, Sum>, IN_PLACE = SAME<A, Sum> && SAME<B, Sum>;
  if (m <= 0 || n <= 0) return;
  if constexpr (IN_PLACE && !CONVERTS) Library::product(a_turned, b_turned, m, n, k, a, lda, b, ldb, c, ldc, adds);
  else {
    constexpr idx_t MOST_N = BLOCK_N * 4 / (idx_t)sizeof(Sum);  // less than half of a thread's stack of 4 MiB in all
    const idx_t depth = IN_PLACE ? k : BLOCK_K;
    Operand<Sum, A, BLOCK_M, BLOCK_K> left(a, lda, a_turned);
    Operand<Sum, B, BLOCK_K, MOST_N> right(b, ldb, b_turned);
    alignas(64) Sum sums[CONVERTS ? BLOCK_M * (MOST_N + BLOCK_PAD) : 1];
    const auto product = [&](idx_t i, idx_t l, idx_t j, const Sum* y, Sum* to, idx_t to_ld) {
      const idx_t rows = least(m - i, BLOCK_M), columns = least(n - j, MOST_N), deep = least(k - l, depth);
      const Sum* const x = left.part(i, l, rows, deep);
      Library::product(a_turned, b_turned, rows, columns, deep, x, left.ld, y, right.ld, to, to_ld, adds || l > 0);
    };
    for (idx_t j = 0; j < n; j += MOST_N) {
      const idx_t columns = least(n - j, MOST_N);
      if constexpr (CONVERTS) {  // what is summed up is in the block, until all of it is
        for (idx_t i = 0; i < m; i += BLOCK_M) {
          const idx_t to_ld = MOST_N + BLOCK_PAD;
          for (idx_t l = 0; l == 0 || l < k; l += depth) product(i, l, j, right.part(l, j, least(k - l, depth), columns), sums, to_ld);
          convert_rows(least(m - i, BLOCK_M), columns, sums, to_ld, c + i * ldc + j, ldc);
        }
      } else {  // a block of B is converted once
        for (idx_t l = 0; l == 0 || l < k; l += depth) {
          const Sum* const y = right.part(l, j, least(k - l, depth), columns);
          for (idx_t i = 0; i < m; i += BLOCK_M) product(i, l, j, y, (Sum*)c + i * ldc + j, ldc);
        }
      }
    }
  }
}
// The same by our own code, whatever the types, of operands as packed::product takes them, with registers of so many bytes.
template <class Sum, int BYTES, class A, class B, class C>
static inline void gemm_packed(idx_t m, idx_t n, idx_t k, const A& a, const B& b, C* c, idx_t ldc, bool adds) {
  if constexpr (SAME<C, Sum>) packed::product<packed::Tiling<Sum, BYTES>>(m, n, k, a, 0, b, 0, c, ldc, adds);
  else {
    constexpr idx_t MOST_M = BLOCK_M, MOST_N = BLOCK_N * 4 / (idx_t)sizeof(Sum);
    alignas(64) Sum sums[MOST_M * MOST_N];
    for (idx_t j = 0; j < n; j += MOST_N)
      for (idx_t i = 0; i < m; i += MOST_M) {
        const idx_t rows = least(m - i, MOST_M), columns = least(n - j, MOST_N);
        packed::product<packed::Tiling<Sum, BYTES>>(rows, columns, k, a, i, b, j, sums, MOST_N, false);
        convert_rows(rows, columns, sums, MOST_N, c + i * ldc + j, ldc);
      }
  }
}
template <class Sum, int BYTES, bool A_TURNED, bool B_TURNED, class A, class B, class C>
static inline void gemm_packed(idx_t m, idx_t n, idx_t k, const A* a, idx_t lda, const B* b, idx_t ldb, C* c, idx_t ldc, bool adds) {
  gemm_packed<Sum, BYTES>(m, n, k, packed::dense<A_TURNED>(a, lda), packed::dense<B_TURNED>(b, ldb), c, ldc, adds);
}
// ---- sums of which the last terms are 0
static inline idx_t between(idx_t low, idx_t i, idx_t high) { return i < low ? low : i < high ? i : high; }
template <class T> constexpr uint64_t INFINITE = 0;  // its bits; 0: of types without one
template <> constexpr uint64_t INFINITE<float> = 0x7f800000;
template <> constexpr uint64_t INFINITE<double> = 0x7ff0000000000000;
template <> constexpr uint64_t INFINITE<bf16> = 0x7f80;
template <> constexpr uint64_t INFINITE<f16> = 0x7c00;
// The bits of the largest magnitude, a NaN's being larger than any.
template <class T> static inline uint64_t most_bits(idx_t rows, idx_t columns, const T* from, idx_t ld) {
  using Bits = Uint<sizeof(T)>;
  Bits most = 0;
  for (idx_t i = 0; i < rows; i++)
    for (idx_t j = 0; j < columns; j++) {
      Bits x;
      memcpy(&x, from + i * ld + j, sizeof x);
      x = (Bits)(x << 1);
      most = x > most ? x : most;
    }
  return (uint64_t)most >> 1;
}
// How many terms the sums of A[m, k] B[k, n] need: the first `seen`, where A's other columns are 0 and B's other rows finite.
template <class A, class B>
static inline idx_t terms_needed(bool b_turned, idx_t m, idx_t n, idx_t k, idx_t seen, const A* a, idx_t lda, const B* b,
                                 idx_t ldb) {
  if (seen >= k || most_bits(m, k - seen, a + seen, lda)) return k;
  const B* const left = b + (b_turned ? seen : seen * ldb);
  return most_bits(b_turned ? n : k - seen, b_turned ? k - seen : n, left, ldb) < INFINITE<B> ? seen : k;
}
#ifdef GEMM_PAIRS
#ifdef __clang__
#define ONE_COPY __attribute__((noinline))
#else
#define ONE_COPY __attribute__((noinline, noclone))  // of what is seldom called: compiling it takes longer than it does
#endif
constexpr idx_t PAIRS_M = 512;    // rows of A for which a block of B is put together once
constexpr idx_t PAIRS_FEW = 256;  // one in so many sums is computed by itself; of a block with more of them, all again
static inline float wide(bf16 x) { return bits<float>((uint64_t)x.u << 16); }
static inline float wide(float x) { return x; }
template <class T> static inline bool is_zero(pairs::Strided<T> row, idx_t k) {
  for (idx_t p = 0; p < k; p++)
    if (!(wide(row.from[p * row.along]) == 0)) return false;
  return true;
}
// All sums once more, of operands that are floats or become such.
template <class Library, class T, class C>
static ONE_COPY void again(bool a_turned, bool b_turned, idx_t m, idx_t n, idx_t k, const T* a, idx_t lda, const T* b, idx_t ldb, C* c,
                           idx_t ldc) {
  gemm<float, Library>(a_turned, b_turned, m, n, k, a, lda, b, ldb, c, ldc, false);
}
// Sums that are so small that what was lost of them counts, once more.
template <class Library, class T, class C>
static ONE_COPY void repair(bool a_turned, bool b_turned, idx_t m, idx_t n, idx_t k, const T* a, idx_t lda, const T* b, idx_t ldb, C* c,
                            idx_t ldc) {
  idx_t left = m * n / PAIRS_FEW;
  for (idx_t i = 0; i < m; i++) {
    const pairs::Strided<T> row{a + i * (a_turned ? 1 : lda), 0, a_turned ? lda : 1};
    bool looked = false;
    for (idx_t j = 0; j < n; j++) {
      if (!(__builtin_fabsf(cast<float>(load<1, 1>(c + i * ldc + j)).v) < pairs::LEAST_SUM)) continue;
      if (!looked && is_zero(row, k)) break;
      looked = true;
      if (left-- <= 0) return again<Library>(a_turned, b_turned, m, n, k, a, lda, b, ldb, c, ldc);
      const pairs::Strided<T> column{b + j * (b_turned ? ldb : 1), 0, b_turned ? 1 : ldb};
      float sum = 0;
      for (idx_t p = 0; p < k; p++) sum = __builtin_fmaf(wide(row.from[p * row.along]), wide(column.from[p * column.along]), sum);
      store<1, 1>(c + i * ldc + j, cast<C>(Vec<float, 1>{sum}));
    }
  }
}
// Whether C = A B by instructions that take denormals for 0 is far off, however large the sums.
static inline bool loses(bool has_large_a, bool has_large_b, bool a_turned, bool b_turned, idx_t m, idx_t n, idx_t k, const bf16* a,
                         idx_t lda, const bf16* b, idx_t ldb) {
  const pairs::Source x{a, a_turned ? 1 : lda, a_turned ? lda : 1}, y{b, b_turned ? ldb : 1, b_turned ? 1 : ldb};
  return (has_large_a && !pairs::least_exponent(n, k, y)) || (has_large_b && !pairs::least_exponent(m, k, x));
}
// The same where it is not known whether elements are large.
static inline bool loses(bool a_turned, bool b_turned, idx_t m, idx_t n, idx_t k, const bf16* a, idx_t lda, const bf16* b, idx_t ldb) {
  const bool has_large_a = most_bits(a_turned ? k : m, a_turned ? m : k, a, lda) >= pairs::LARGE;
  const bool has_large_b = most_bits(b_turned ? n : k, b_turned ? k : n, b, ldb) >= pairs::LARGE;
  return loses(has_large_a, has_large_b, a_turned, b_turned, m, n, k, a, lda, b, ldb);
}
// bf16 products without widening.
template <class C>
static inline void gemm_by_pairs(bool a_turned, bool b_turned, idx_t m, idx_t n, idx_t k, const bf16* a, idx_t lda,
                                 const bf16* b, idx_t ldb, C* c, idx_t ldc) {
  constexpr bool ROUNDS = !SAME<C, float>;
  constexpr idx_t DEPTH = pairs::DEPTH;
  pairs::Block<PAIRS_M, BLOCK_N> block;
  alignas(64) float sums[ROUNDS ? PAIRS_M * (BLOCK_N + BLOCK_PAD) : 1];
  for (idx_t i = 0; i < m; i += PAIRS_M)
    for (idx_t j = 0; j < n; j += BLOCK_N) {
      const idx_t rows = m - i < PAIRS_M ? m - i : PAIRS_M, columns = n - j < BLOCK_N ? n - j : BLOCK_N;
      const idx_t to_ld = ROUNDS ? BLOCK_N + BLOCK_PAD : ldc;
      float* const to = ROUNDS ? sums : (float*)c + i * ldc + j;
      const bf16 *const x = a + i * (a_turned ? 1 : lda), *const y = b + j * (b_turned ? ldb : 1);
      bool whole = true;
      for (idx_t l = 0; l == 0 || l < k; l += DEPTH) {
        const pairs::Source left{x + l * (a_turned ? lda : 1), a_turned ? 1 : lda, a_turned ? lda : 1};
        const pairs::Source right{y + l * (b_turned ? 1 : ldb), b_turned ? ldb : 1, b_turned ? 1 : ldb};
        whole &= block.product(rows, columns, k - l < DEPTH ? k - l : DEPTH, left, right, to, to_ld, l > 0);
      }
      if (!whole && loses(a_turned, b_turned, rows, columns, k, x, lda, y, ldb))
        again<OpenBlas>(a_turned, b_turned, rows, columns, k, x, lda, y, ldb, to, to_ld);
      else if (!whole) repair<OpenBlas>(a_turned, b_turned, rows, columns, k, x, lda, y, ldb, to, to_ld);
      if constexpr (ROUNDS) convert_rows(rows, columns, sums, to_ld, c + i * ldc + j, ldc);
    }
}
constexpr idx_t TILES_M = 512, TILES_N[2] = {384, 768};  // of a block: 0.8 MB of the second cache, or 1.6 for long sums
constexpr idx_t LONG_SUM = 1024;
// The bits of the smallest magnitude of some sums, of which NaNs are none.
static inline uint32_t least_magnitude(idx_t m, idx_t n, const float* c, idx_t ldc) {
  uint32_t least = 0x7fffffff;
  for (idx_t i = 0; i < m; i++)
    for (idx_t j = 0; j < n; j++) {
      uint32_t bits;
      memcpy(&bits, c + i * ldc + j, sizeof bits);
      bits &= 0x7fffffff;
      least = bits < least ? bits : least;
    }
  return least;
}
// bf16 products by a library that has them, which may use tiles of registers.
template <class Library, class C>
static inline void gemm_by_tiles(bool a_turned, bool b_turned, idx_t m, idx_t n, idx_t k, const bf16* a, idx_t lda,
                                 const bf16* b, idx_t ldb, C* c, idx_t ldc) {
  constexpr bool ROUNDS = !SAME<C, float>;
  constexpr idx_t SUMS_LD = TILES_N[1] + BLOCK_PAD;
  alignas(64) float sums[ROUNDS ? TILES_M * SUMS_LD : 1];
  if (loses(a_turned, b_turned, m, n, k, a, lda, b, ldb))
    return again<Library>(a_turned, b_turned, m, n, k, a, lda, b, ldb, c, ldc);
  uint32_t small;
  memcpy(&small, &pairs::LEAST_SUM, sizeof small);
  const idx_t most_m = ROUNDS ? TILES_M : m, most_n = ROUNDS ? TILES_N[k > LONG_SUM] : n;
  for (idx_t j = 0; j < n; j += most_n)
    for (idx_t i = 0; i < m; i += most_m) {
      const idx_t rows = least(m - i, most_m), columns = least(n - j, most_n), to_ld = ROUNDS ? most_n + BLOCK_PAD : ldc;
      float* const to = ROUNDS ? sums : (float*)c + i * ldc + j;
      const bf16 *const x = a + i * (a_turned ? 1 : lda), *const y = b + j * (b_turned ? ldb : 1);
      Library::product(a_turned, b_turned, rows, columns, k, x, lda, y, ldb, to, to_ld);
      if (least_magnitude(rows, columns, to, to_ld) < small)
        repair<Library>(a_turned, b_turned, rows, columns, k, x, lda, y, ldb, to, to_ld);
      if constexpr (ROUNDS) convert_rows(rows, columns, sums, to_ld, c + i * ldc + j, ldc);
    }
}
constexpr idx_t AMX_M = 256, AMX_N = 256, AMX_LD = AMX_N + BLOCK_PAD;  // of a block of sums
// Where sums of some operands are: in a block of floats, which then become C's.
template <class Products, class T, class C>
static inline void gemm_by_blocks(bool a_turned, bool b_turned, idx_t m, idx_t n, idx_t k, const T* a, idx_t lda, const T* b, idx_t ldb,
                                  C* c, idx_t ldc) {
  alignas(64) float sums[AMX_M * AMX_LD];
  for (idx_t j = 0; j < n; j += AMX_N)
    for (idx_t i = 0; i < m; i += AMX_M) {
      const idx_t rows = least(m - i, AMX_M), columns = least(n - j, AMX_N);
      const T *const x = a + i * (a_turned ? 1 : lda), *const y = b + j * (b_turned ? ldb : 1);
      Products::product(a_turned, b_turned, rows, columns, k, x, lda, y, ldb, sums, AMX_LD);
      convert_rows(rows, columns, sums, AMX_LD, c + i * ldc + j, ldc);
    }
}
#ifdef GEMM_AMX
// Products by AMX, of bf16 as they are and of floats by pieces. OF_A, PIECES_OF_A: whether tiles of A are rows, not B's, for bf16
// and for pieces. LONG: whether sums of bf16 may have more than amx::MOST_DEPTH terms.
template <bool OF_A, bool LONG, bool PIECES_OF_A> struct Amx {
  template <class C>
  static void product(bool a_turned, bool b_turned, idx_t m, idx_t n, idx_t k, const bf16* a, idx_t lda, const bf16* b, idx_t ldb, C* c,
                      idx_t ldc) {
    const pairs::Source x{a, a_turned ? 1 : lda, a_turned ? lda : 1}, y{b, b_turned ? ldb : 1, b_turned ? 1 : ldb};
    const idx_t rows = OF_A ? m : n, columns = OF_A ? n : m;
    amx::Found found;
    if constexpr (LONG) found = amx::long_product<amx::Registers, !OF_A>(rows, columns, k, OF_A ? x : y, OF_A ? y : x, c, ldc);
    else found = amx::product<amx::Registers, !OF_A>(rows, columns, k, OF_A ? x : y, OF_A ? y : x, c, ldc);
    const bool has_large_a = OF_A ? found.has_large_rows : found.has_large_columns;
    const bool has_large_b = OF_A ? found.has_large_columns : found.has_large_rows;
    if (loses(has_large_a, has_large_b, a_turned, b_turned, m, n, k, a, lda, b, ldb))
      again<OpenBlas>(a_turned, b_turned, m, n, k, a, lda, b, ldb, c, ldc);
    else if (found.is_small) repair<OpenBlas>(a_turned, b_turned, m, n, k, a, lda, b, ldb, c, ldc);
  }
  static void product(bool a_turned, bool b_turned, idx_t m, idx_t n, idx_t k, const float* a, idx_t lda, const float* b, idx_t ldb,
                      float* c, idx_t ldc) {
    const split::Source x{a, a_turned ? 1 : lda, a_turned ? lda : 1}, y{b, b_turned ? ldb : 1, b_turned ? 1 : ldb};
    const split::Found found = split::product<amx::Registers, !PIECES_OF_A>(
        PIECES_OF_A ? m : n, PIECES_OF_A ? n : m, k, PIECES_OF_A ? x : y, PIECES_OF_A ? y : x, c, ldc);
    if (found.is_wrong) again<OpenBlas>(a_turned, b_turned, m, n, k, a, lda, b, ldb, c, ldc);
    else if (found.is_small) repair<OpenBlas>(a_turned, b_turned, m, n, k, a, lda, b, ldb, c, ldc);
  }
};
#endif
// Products by AMX; of floats by a library where the compiler does not know it, or the system does not let the process use its
// registers.
template <bool OF_A, bool LONG, bool PIECES_OF_A, class T, class C>
static inline void gemm_by_amx(bool a_turned, bool b_turned, idx_t m, idx_t n, idx_t k, const T* a, idx_t lda, const T* b, idx_t ldb,
                               C* c, idx_t ldc) {
#ifdef GEMM_AMX
  if (m <= 0 || n <= 0) return;
  if (amx::permitted()) {
    if constexpr (SAME<C, float> || (SAME<T, bf16> && !LONG))
      return Amx<OF_A, LONG, PIECES_OF_A>::product(a_turned, b_turned, m, n, k, a, lda, b, ldb, c, ldc);
    else return gemm_by_blocks<Amx<OF_A, LONG, PIECES_OF_A>>(a_turned, b_turned, m, n, k, a, lda, b, ldb, c, ldc);
  }
#endif
  again<OpenBlas>(a_turned, b_turned, m, n, k, a, lda, b, ldb, c, ldc);
}
#endif
// Products by MKL, of bf16 as they are where it can.
template <class Sum, class A, class B, class C>
static inline void gemm_by_mkl(bool a_turned, bool b_turned, idx_t m, idx_t n, idx_t k, const A* a, idx_t lda, const B* b,
                               idx_t ldb, C* c, idx_t ldc, bool adds) {
#ifdef GEMM_PAIRS
  if constexpr (SAME<A, bf16> && SAME<B, bf16> && SAME<Sum, float>)
    if (!adds) return gemm_by_tiles<Mkl>(a_turned, b_turned, m, n, k, a, lda, b, ldb, c, ldc);
#endif
  gemm<Sum, Mkl>(a_turned, b_turned, m, n, k, a, lda, b, ldb, c, ldc, adds);
}
