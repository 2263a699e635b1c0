// Kernels that show what this machine can reach: bandwidth by level of memory, f32 multiply-adds, products of narrow operands.
// Timed by codegen/child/cpu_ceilings.py.
//
// args of copies and reads: source, target, pointer to {bytes, repeats}. Every thread works on its own part. args of
// ceiling_move: source, target, pointer to {bytes read, bytes written, bytes of a turn}.

#include <stdint.h>
#if defined(__x86_64__) && defined(__linux__) && (__GNUC__ >= 11 || defined(__clang__))
#define TILES 1
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if defined(__AVX512F__)
#define WIDTH 64
#elif defined(__AVX__)
#define WIDTH 32
#else
#define WIDTH 16
#endif

#define AHEAD 1024  // bytes

typedef float Floats __attribute__((vector_size(WIDTH)));
typedef int64_t Words __attribute__((vector_size(WIDTH)));

static inline void stream(Words* p, Words v) {
#if defined(__clang__)
  __builtin_nontemporal_store(v, p);
#elif defined(__AVX512F__)
  __builtin_ia32_movntdq512((long long __attribute__((vector_size(64)))*)p, (long long __attribute__((vector_size(64))))v);
#elif defined(__AVX__)
  __builtin_ia32_movntdq256((long long __attribute__((vector_size(32)))*)p, (long long __attribute__((vector_size(32))))v);
#elif defined(__SSE2__)
  __builtin_ia32_movntdq((long long __attribute__((vector_size(16)))*)p, (long long __attribute__((vector_size(16))))v);
#else
  *p = v;
#endif
}

static inline void part(void* const* args, long task, long tasks, const Words*& from, Words*& to, int64_t& n, int64_t& repeats) {
  const int64_t* size = (const int64_t*)args[2];
  n = size[0] / WIDTH / tasks / 8 * 8;
  repeats = size[1];
  from = (const Words*)args[0] + n * task;
  to = (Words*)args[1] + n * task;
}

#define EACH for (int64_t r = 0; r < repeats; ++r) for (int64_t i = 0; i < n; i += 8)

// ahead: bytes, from where what is read is brought into the caches; 0: it is not.
template <int ahead> static inline void copy_streaming(void* const* args, long task, long tasks) {
  const Words* from;
  Words* to;
  int64_t n, repeats;
  part(args, task, tasks, from, to, n, repeats);
#pragma GCC unroll 1
  for (int64_t r = 0; r < repeats; ++r)
#pragma GCC unroll 1
    for (int64_t i = 0; i < n; ++i) {
      if (ahead) __builtin_prefetch((const char*)(from + i) + ahead, 0, 3);
      stream(to + i, from[i]);
    }
#if defined(__SSE2__)
  __builtin_ia32_sfence();
#endif
}

template <int ahead> static inline void read(void* const* args, long task, long tasks) {
  const Words* from;
  Words* to;
  int64_t n, repeats;
  part(args, task, tasks, from, to, n, repeats);
  Words a = {}, b = a, c = a, d = a;
  EACH {
    if (ahead) for (int j = 0; j < 8; ++j) __builtin_prefetch((const char*)(from + i + j) + ahead, 0, 3);
    a ^= from[i] ^ from[i + 1];
    b ^= from[i + 2] ^ from[i + 3];
    c ^= from[i + 4] ^ from[i + 5];
    d ^= from[i + 6] ^ from[i + 7];
    __asm__ __volatile__("" ::: "memory");
  }
  a ^= b ^ c ^ d;
  int64_t any = 0;
  for (int j = 0; j < WIDTH / 8; ++j) any ^= a[j];
  if (any == 0x5ca1ab1e) *(int64_t*)to = any;  // never: keeps the sums alive
}

extern "C" {

void ceiling_copy(void* const* args, long task, long tasks) {
  const Words* from;
  Words* to;
  int64_t n, repeats;
  part(args, task, tasks, from, to, n, repeats);
  EACH {
    for (int j = 0; j < 8; ++j) to[i + j] = from[i + j];
    __asm__ __volatile__("" ::: "memory");
  }
}

void ceiling_copy_streaming(void* const* args, long task, long tasks) { copy_streaming<0>(args, task, tasks); }

// Of main memory, also with what comes next brought on its way, as our kernels have it: copies at 52 GB/s instead of 40 by 2
// cores of an Intel Xeon.
void ceiling_copy_fetching(void* const* args, long task, long tasks) { copy_streaming<AHEAD>(args, task, tasks); }

void ceiling_read(void* const* args, long task, long tasks) { read<0>(args, task, tasks); }

void ceiling_read_fetching(void* const* args, long task, long tasks) { read<AHEAD>(args, task, tasks); }

// Reads so many bytes and writes so many others past the caches, in turns. What is written is never all zeros: AMD's Zen 5
// writes lines of zeros twice as fast as others (93 and 44 GB/s by 2 cores within a minute).
void ceiling_move(void* const* args, long task, long tasks) {
  const int64_t* size = (const int64_t*)args[2];
  const int64_t reads = size[0] / WIDTH / tasks, writes = size[1] / WIDTH / tasks;
  const int64_t turns = (reads > writes ? reads : writes) * WIDTH / size[2] + 1;
  const Words* from = (const Words*)args[0] + reads * task;
  Words* to = (Words*)args[1] + writes * task;
  Words a = {}, b = a, c = a, d = a;
  for (int64_t t = 0; t < turns; ++t) {
    int64_t i = reads * t / turns;
    const int64_t end = reads * (t + 1) / turns;
    for (; i + 4 <= end; i += 4) {
      a ^= from[i], b ^= from[i + 1], c ^= from[i + 2], d ^= from[i + 3];
      __asm__ __volatile__("" ::: "memory");
    }
    for (; i < end; ++i) a ^= from[i];
    const Words some = a | 1;
#pragma GCC unroll 1
    for (int64_t j = writes * t / turns; j < writes * (t + 1) / turns; ++j) stream(to + j, some);
  }
#if defined(__SSE2__)
  __builtin_ia32_sfence();
#endif
  a ^= b ^ c ^ d;
  int64_t any = 0;
  for (int j = 0; j < WIDTH / 8; ++j) any ^= a[j];
  if (any == 0x5ca1ab1e) *(int64_t*)to = any;  // never: keeps the sums alive
}

// Multiply-adds per call and thread: repeats * 12 * lanes. args[0]: some floats. Variables, not an array: arrays get spilled.
void ceiling_fma(void* const* args, long task, long tasks) {
  const int64_t repeats = ((const int64_t*)args[2])[1];
  Floats x, y;
  for (int l = 0; l < WIDTH / 4; ++l) x[l] = ((const float*)args[0])[l], y[l] = ((const float*)args[0])[l + 1];
  Floats a = x, b = x + 1, c = x + 2, d = x + 3, e = x + 4, f = x + 5, g = x + 6, h = x + 7, i = x + 8, j = x + 9, k = x + 10, l = x + 11;
#pragma GCC unroll 1
  for (int64_t r = 0; r < repeats; ++r) {
    a = a * x + y, b = b * x + y, c = c * x + y, d = d * x + y, e = e * x + y, f = f * x + y;
    g = g * x + y, h = h * x + y, i = i * x + y, j = j * x + y, k = k * x + y, l = l * x + y;
  }
  a += b + c + d + e + f + g + h + i + j + k + l;
  if (a[0] == 1.2345f) ((float*)args[1])[task] = a[0];
}

int ceiling_width() { return WIDTH; }

// Products of narrow operands, each added to a sum, by instructions that do several for each sum: repeats * 12 * sums in a
// register * products of a sum, per call and thread. A machine without such an instruction has no such function.
#define PRODUCTS(name, add)                                                                        \
  void name(void* const* args, long task, long tasks) {                                            \
    const int64_t repeats = ((const int64_t*)args[2])[1];                                          \
    Words x, y;                                                                                    \
    for (int l = 0; l < WIDTH / 8; ++l) x[l] = y[l] = ((const int64_t*)args[0])[l];                \
    Words a = {}, b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a, k = a, l = a;     \
    _Pragma("GCC unroll 1") for (int64_t r = 0; r < repeats; ++r) {                                \
      add(a); add(b); add(c); add(d); add(e); add(f); add(g); add(h); add(i); add(j); add(k); add(l);  \
    }                                                                                              \
    a ^= b ^ c ^ d ^ e ^ f ^ g ^ h ^ i ^ j ^ k ^ l;                                                \
    if (a[0] == 0x5ca1ab1e) ((int64_t*)args[1])[task] = a[0];                                      \
  }

#if defined(__AVX512BF16__)
#define ADD_BF16(sum) __asm__ __volatile__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y))
PRODUCTS(ceiling_bf16_pairs, ADD_BF16)  // two for each sum of 4 bytes
#endif

#if defined(__AVX512VNNI__) && defined(__AVX512F__)
#define ADD_I8(sum) __asm__ __volatile__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y))
PRODUCTS(ceiling_i8_fours, ADD_I8)  // four for each
#elif defined(__AVXVNNI__)
#define ADD_I8(sum) __asm__ __volatile__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(x), "x"(y))
PRODUCTS(ceiling_i8_fours, ADD_I8)
#elif defined(__AVX2__) || defined(__SSE2__)
typedef int32_t Sums __attribute__((vector_size(WIDTH)));
#if defined(__AVX512BW__) || (defined(__AVX2__) && !defined(__AVX512F__))
#define MULTIPLY "vpmaddwd %2, %1, %0"
#elif !defined(__AVX__)
#define MULTIPLY "movdqa %1, %0\n\tpmaddwd %2, %0"
#endif
#if defined(MULTIPLY)
#define ADD_I16(sum)                                                        \
  {                                                                         \
    Words two;                                                              \
    __asm__ __volatile__(MULTIPLY : "=&v"(two) : "v"(x), "v"(y));           \
    sum = (Words)((Sums)sum + (Sums)two);                                   \
  }
PRODUCTS(ceiling_i8_pairs, ADD_I16)  // two for each, of operands widened to 16 bits
#endif
#endif

#if defined(TILES)
// Whether the CPU has tiles of registers (AMX) that multiply bf16, and the system lets this process use them from now on.
int ceiling_has_bf16_tiles() {
  const unsigned has_bf16 = 1u << 22, has_tiles = 1u << 24;
  const long ask_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & has_bf16) || !(d & has_tiles)) return 0;
  return syscall(SYS_arch_prctl, ask_permission, tile_data) == 0;
}
// Products of bf16 by them: repeats * ceiling_tile_products() per call and thread.
__attribute__((target("amx-tile,amx-bf16"))) void ceiling_bf16_tiles(void* const* args, long task, long tasks) {
  alignas(64) struct {
    uint8_t palette = 1, start = 0, unused[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } shape;
  const int64_t repeats = ((const int64_t*)args[2])[1];
  alignas(64) float sum[16 * 16];
  __asm__ __volatile__("ldtilecfg %0" ::"m"(shape));
  __asm__ __volatile__("tilezero %%tmm0; tilezero %%tmm1; tilezero %%tmm2; tilezero %%tmm3" ::);
  __asm__ __volatile__("tilezero %%tmm4; tilezero %%tmm5; tilezero %%tmm6; tilezero %%tmm7" ::);
  for (int64_t r = 0; r < repeats; ++r)
    __asm__ __volatile__(
        "tdpbf16ps %%tmm6, %%tmm4, %%tmm0; tdpbf16ps %%tmm7, %%tmm4, %%tmm1; tdpbf16ps %%tmm6, %%tmm5, %%tmm2;"
        "tdpbf16ps %%tmm7, %%tmm5, %%tmm3" ::);
  __asm__ __volatile__("tilestored %%tmm0, (%0, %1, 1)" ::"r"(sum), "r"(64l) : "memory");
  __asm__ __volatile__("tilerelease" ::);
  if (sum[0] == 1.2345f) ((float*)args[1])[task] = sum[0];
}
int ceiling_tile_products() { return 4 * 16 * 16 * 32; }
#endif
}
