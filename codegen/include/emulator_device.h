// The vocabulary of device_cuda.cuh for the emulator. All of it checks, and reports the caller's line.
#pragma once
extern "C" {
unsigned char* emulator_shared_memory();
uint32_t emulator_shared_address(const void* p, emulator::Site site);
void emulator_block_barrier(emulator::Site site);
void emulator_named_barrier(int id, int threads, emulator::Site site);
void emulator_warp_barrier(uint32_t mask, emulator::Site site);
void emulator_shuffle(void* value, int bytes, int how, int lane, uint32_t mask, emulator::Site site);
uint32_t emulator_ballot(bool x, uint32_t mask, emulator::Site site);
void emulator_memory_fence();
void emulator_watch(const void* p, emulator::Site site);
void emulator_copy_async(uint32_t to, const void* from, int bytes, bool there, emulator::Site site);
void emulator_copy_async_commit();
void emulator_copy_async_wait(int groups);
void emulator_load_matrix(uint32_t* r, int count, bool transposed, uint32_t row_address, emulator::Site site);
void emulator_mma(int kind, void* d, const uint32_t* a, uint32_t b0, uint32_t b1, emulator::Site site);
void emulator_shared_access(const void* p, int bytes, emulator::Access access, const char* file, int line);
}
namespace emulator {
enum Shuffle : int { XOR, DOWN, UP, FROM };
enum Matrices : int { F16, BF16, TF32, S8 };
}  // namespace emulator

#define SHARED_MEMORY(name) unsigned char* const name = emulator_shared_memory()
inline uint32_t shared_address(const void* p, FP_SITE) { return emulator_shared_address(p, site); }
template <class T, int W> inline Vec<T, W> shared_load(const T* p, FP_SITE) {
  static_assert(Accesses<T, W, W>::N == 1, "one access");
  emulator_shared_access(p, W * sizeof(T), emulator::LOAD, site.file, site.line);
  Vec<T, W> r;
  memcpy(&r, p, sizeof r);
  return r;
}
template <class T, int W> inline void shared_store(T* p, const Vec<T, W>& x, FP_SITE) {
  static_assert(Accesses<T, W, W>::N == 1, "one access");
  emulator_shared_access(p, W * sizeof(T), emulator::STORE, site.file, site.line);
  memcpy(p, &x, sizeof x);
}

inline void block_barrier(FP_SITE) { emulator_block_barrier(site); }
inline void named_barrier(int id, int threads, FP_SITE) { emulator_named_barrier(id, threads, site); }
inline void warp_barrier(uint32_t mask = ~0u, FP_SITE) { emulator_warp_barrier(mask, site); }

template <class T> inline T shuffle_xor(T x, int lanes, uint32_t mask = ~0u, FP_SITE) {
  static_assert(sizeof(T) <= 8, "1 to 8 bytes");
  emulator_shuffle(&x, sizeof x, emulator::XOR, lanes, mask, site);
  return x;
}
template <class T> inline T shuffle_down(T x, int by, uint32_t mask = ~0u, FP_SITE) {
  static_assert(sizeof(T) <= 8, "1 to 8 bytes");
  emulator_shuffle(&x, sizeof x, emulator::DOWN, by, mask, site);
  return x;
}
template <class T> inline T shuffle_up(T x, int by, uint32_t mask = ~0u, FP_SITE) {
  static_assert(sizeof(T) <= 8, "1 to 8 bytes");
  emulator_shuffle(&x, sizeof x, emulator::UP, by, mask, site);
  return x;
}
template <class T> inline T shuffle_from(T x, int lane, uint32_t mask = ~0u, FP_SITE) {
  static_assert(sizeof(T) <= 8, "1 to 8 bytes");
  emulator_shuffle(&x, sizeof x, emulator::FROM, lane, mask, site);
  return x;
}
inline uint32_t vote_ballot(bool x, uint32_t mask = ~0u, FP_SITE) { return emulator_ballot(x, mask, site); }
inline bool vote_any(bool x, uint32_t mask = ~0u, FP_SITE) { return emulator_ballot(x, mask, site) != 0; }
inline bool vote_all(bool x, uint32_t mask = ~0u, FP_SITE) { return emulator_ballot(!x, mask, site) == 0; }

template <class T> inline T atomic_add(T* p, T x, FP_SITE) {
  FP_CHECK(p, sizeof(T), ATOMIC);
  const T before = *p;
  if constexpr (FLOATING<T>) *p = before + x;
  else *p = (T)((Uint<sizeof(T)>)before + (Uint<sizeof(T)>)x);
  return before;
}
template <class T> inline T atomic_max(T* p, T x, FP_SITE) {
  FP_CHECK(p, sizeof(T), ATOMIC);
  const T before = *p;
  *p = before > x || before != before ? before : x;
  return before;
}
template <class T> inline T atomic_min(T* p, T x, FP_SITE) {
  FP_CHECK(p, sizeof(T), ATOMIC);
  const T before = *p;
  *p = before < x || before != before ? before : x;
  return before;
}
inline void memory_fence() { emulator_memory_fence(); }
template <class T> inline T load_acquire(const T* p, FP_SITE) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "words");
  FP_CHECK(p, sizeof(T), ACQUIRE);
  return *p;
}
template <class T> inline void store_release(T* p, T x, FP_SITE) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "words");
  FP_CHECK(p, sizeof(T), RELEASE);
  *p = x;
}
template <class T, class F> inline T wait_until(const T* p, F holds, FP_SITE) {
  for (;;) {
    const T x = load_acquire(p, site);
    if (holds(x)) return x;
    emulator_watch(p, site);
  }
}

template <int BYTES> inline void copy_async(uint32_t to, const void* from, bool there = true, FP_SITE) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "an access");
  emulator_copy_async(to, from, BYTES, there, site);
}
inline void copy_async_commit() { emulator_copy_async_commit(); }
template <int N> inline void copy_async_wait() { emulator_copy_async_wait(N); }

inline void load_matrix_x4(uint32_t (&r)[4], uint32_t row_address, FP_SITE) { emulator_load_matrix(r, 4, false, row_address, site); }
inline void load_matrix_x4_transposed(uint32_t (&r)[4], uint32_t row_address, FP_SITE) { emulator_load_matrix(r, 4, true, row_address, site); }
inline void load_matrix_x2(uint32_t (&r)[2], uint32_t row_address, FP_SITE) { emulator_load_matrix(r, 2, false, row_address, site); }
inline void load_matrix_x2_transposed(uint32_t (&r)[2], uint32_t row_address, FP_SITE) { emulator_load_matrix(r, 2, true, row_address, site); }
template <class T> inline void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, FP_SITE) {
  static_assert(SAME<T, f16> || SAME<T, bf16>, "16-bit floats");
  emulator_mma(SAME<T, f16> ? emulator::F16 : emulator::BF16, d, a, b0, b1, site);
}
inline void mma_16x8x8_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, FP_SITE) { emulator_mma(emulator::TF32, d, a, b0, b1, site); }
inline uint32_t tf32(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return (u & 0x7fffffff) < 0x7f800000 ? (u + 0x1000) & ~0x1fffu : x != x ? 0x7fffffff : u;
}
inline void mma_16x8x32_s8(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, FP_SITE) { emulator_mma(emulator::S8, d, a, b0, b1, site); }
