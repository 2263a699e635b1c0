// wgmma.mma_async.m64nNk16 for every N that there is: a warp group's 64 rows of results, N / 2 accumulators a thread.
//
// Thread t of the group has rows t / 32 * 16 + t % 32 / 4 and, in registers 2 and 3 of four, eight below; columns
// 8 j + t % 4 * 2 and the one to its right in d[4 j], d[4 j + 1].
#pragma once
#define WGMMA_FOUR(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
// Accumulators as operands of a wgmma: those of eight columns, four a thread, then all before them.
#define WGMMA_NAMES_8 "%0, %1, %2, %3"
#define WGMMA_NAMES_16 WGMMA_NAMES_8 ", %4, %5, %6, %7"
#define WGMMA_NAMES_24 WGMMA_NAMES_16 ", %8, %9, %10, %11"
#define WGMMA_NAMES_32 WGMMA_NAMES_24 ", %12, %13, %14, %15"
#define WGMMA_NAMES_40 WGMMA_NAMES_32 ", %16, %17, %18, %19"
#define WGMMA_NAMES_48 WGMMA_NAMES_40 ", %20, %21, %22, %23"
#define WGMMA_NAMES_56 WGMMA_NAMES_48 ", %24, %25, %26, %27"
#define WGMMA_NAMES_64 WGMMA_NAMES_56 ", %28, %29, %30, %31"
#define WGMMA_NAMES_72 WGMMA_NAMES_64 ", %32, %33, %34, %35"
#define WGMMA_NAMES_80 WGMMA_NAMES_72 ", %36, %37, %38, %39"
#define WGMMA_NAMES_88 WGMMA_NAMES_80 ", %40, %41, %42, %43"
#define WGMMA_NAMES_96 WGMMA_NAMES_88 ", %44, %45, %46, %47"
#define WGMMA_NAMES_104 WGMMA_NAMES_96 ", %48, %49, %50, %51"
#define WGMMA_NAMES_112 WGMMA_NAMES_104 ", %52, %53, %54, %55"
#define WGMMA_NAMES_120 WGMMA_NAMES_112 ", %56, %57, %58, %59"
#define WGMMA_NAMES_128 WGMMA_NAMES_120 ", %60, %61, %62, %63"
#define WGMMA_NAMES_136 WGMMA_NAMES_128 ", %64, %65, %66, %67"
#define WGMMA_NAMES_144 WGMMA_NAMES_136 ", %68, %69, %70, %71"
#define WGMMA_NAMES_152 WGMMA_NAMES_144 ", %72, %73, %74, %75"
#define WGMMA_NAMES_160 WGMMA_NAMES_152 ", %76, %77, %78, %79"
#define WGMMA_NAMES_168 WGMMA_NAMES_160 ", %80, %81, %82, %83"
#define WGMMA_NAMES_176 WGMMA_NAMES_168 ", %84, %85, %86, %87"
#define WGMMA_NAMES_184 WGMMA_NAMES_176 ", %88, %89, %90, %91"
#define WGMMA_NAMES_192 WGMMA_NAMES_184 ", %92, %93, %94, %95"
#define WGMMA_NAMES_200 WGMMA_NAMES_192 ", %96, %97, %98, %99"
#define WGMMA_NAMES_208 WGMMA_NAMES_200 ", %100, %101, %102, %103"
#define WGMMA_NAMES_216 WGMMA_NAMES_208 ", %104, %105, %106, %107"
#define WGMMA_NAMES_224 WGMMA_NAMES_216 ", %108, %109, %110, %111"
#define WGMMA_NAMES_232 WGMMA_NAMES_224 ", %112, %113, %114, %115"
#define WGMMA_NAMES_240 WGMMA_NAMES_232 ", %116, %117, %118, %119"
#define WGMMA_NAMES_248 WGMMA_NAMES_240 ", %120, %121, %122, %123"
#define WGMMA_NAMES_256 WGMMA_NAMES_248 ", %124, %125, %126, %127"
#define WGMMA_FLOATS_8 WGMMA_FOUR(0)
#define WGMMA_FLOATS_16 WGMMA_FLOATS_8, WGMMA_FOUR(4)
#define WGMMA_FLOATS_24 WGMMA_FLOATS_16, WGMMA_FOUR(8)
#define WGMMA_FLOATS_32 WGMMA_FLOATS_24, WGMMA_FOUR(12)
#define WGMMA_FLOATS_40 WGMMA_FLOATS_32, WGMMA_FOUR(16)
#define WGMMA_FLOATS_48 WGMMA_FLOATS_40, WGMMA_FOUR(20)
#define WGMMA_FLOATS_56 WGMMA_FLOATS_48, WGMMA_FOUR(24)
#define WGMMA_FLOATS_64 WGMMA_FLOATS_56, WGMMA_FOUR(28)
#define WGMMA_FLOATS_72 WGMMA_FLOATS_64, WGMMA_FOUR(32)
#define WGMMA_FLOATS_80 WGMMA_FLOATS_72, WGMMA_FOUR(36)
#define WGMMA_FLOATS_88 WGMMA_FLOATS_80, WGMMA_FOUR(40)
#define WGMMA_FLOATS_96 WGMMA_FLOATS_88, WGMMA_FOUR(44)
#define WGMMA_FLOATS_104 WGMMA_FLOATS_96, WGMMA_FOUR(48)
#define WGMMA_FLOATS_112 WGMMA_FLOATS_104, WGMMA_FOUR(52)
#define WGMMA_FLOATS_120 WGMMA_FLOATS_112, WGMMA_FOUR(56)
#define WGMMA_FLOATS_128 WGMMA_FLOATS_120, WGMMA_FOUR(60)
#define WGMMA_FLOATS_136 WGMMA_FLOATS_128, WGMMA_FOUR(64)
#define WGMMA_FLOATS_144 WGMMA_FLOATS_136, WGMMA_FOUR(68)
#define WGMMA_FLOATS_152 WGMMA_FLOATS_144, WGMMA_FOUR(72)
#define WGMMA_FLOATS_160 WGMMA_FLOATS_152, WGMMA_FOUR(76)
#define WGMMA_FLOATS_168 WGMMA_FLOATS_160, WGMMA_FOUR(80)
#define WGMMA_FLOATS_176 WGMMA_FLOATS_168, WGMMA_FOUR(84)
#define WGMMA_FLOATS_184 WGMMA_FLOATS_176, WGMMA_FOUR(88)
#define WGMMA_FLOATS_192 WGMMA_FLOATS_184, WGMMA_FOUR(92)
#define WGMMA_FLOATS_200 WGMMA_FLOATS_192, WGMMA_FOUR(96)
#define WGMMA_FLOATS_208 WGMMA_FLOATS_200, WGMMA_FOUR(100)
#define WGMMA_FLOATS_216 WGMMA_FLOATS_208, WGMMA_FOUR(104)
#define WGMMA_FLOATS_224 WGMMA_FLOATS_216, WGMMA_FOUR(108)
#define WGMMA_FLOATS_232 WGMMA_FLOATS_224, WGMMA_FOUR(112)
#define WGMMA_FLOATS_240 WGMMA_FLOATS_232, WGMMA_FOUR(116)
#define WGMMA_FLOATS_248 WGMMA_FLOATS_240, WGMMA_FOUR(120)
#define WGMMA_FLOATS_256 WGMMA_FLOATS_248, WGMMA_FOUR(124)
// Operands of the instruction behind the accumulators, by number: two descriptors, the predicate's register, two
// transpositions; or, with a in registers, four of them, a descriptor, the predicate's register, one transposition.
#define WGMMA_TEXT(N, type, operands, last, flags) "{ .reg .pred adds; setp.ne.b32 adds, " last ", 0;\n" \
  "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type " {" WGMMA_NAMES_##N "}, " operands ", adds, 1, 1, " flags "; }"
#define WGMMA_COLUMNS(N, i, j, k, l, m, n, o) \
template <class T, bool A_ACROSS, bool B_ACROSS> struct Wgmma<T, N, A_ACROSS, B_ACROSS> { \
  static VDEV void run(float (&d)[N / 2], uint64_t a, uint64_t b, int adds) { \
    if constexpr (SAME<T, bf16>) SM90A_ASM(WGMMA_TEXT(N, "bf16", i ", " j, k, l ", " m) \
      : WGMMA_FLOATS_##N : "l"(a), "l"(b), "r"(adds), "n"((int)A_ACROSS), "n"((int)B_ACROSS)); \
    else SM90A_ASM(WGMMA_TEXT(N, "f16", i ", " j, k, l ", " m) \
      : WGMMA_FLOATS_##N : "l"(a), "l"(b), "r"(adds), "n"((int)A_ACROSS), "n"((int)B_ACROSS)); \
  } \
  static VDEV void run(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, int adds) { \
    if constexpr (SAME<T, bf16>) SM90A_ASM(WGMMA_TEXT(N, "bf16", "{" i ", " j ", " k ", " l "}, " m, n, o) \
      : WGMMA_FLOATS_##N : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds), "n"((int)B_ACROSS)); \
    else SM90A_ASM(WGMMA_TEXT(N, "f16", "{" i ", " j ", " k ", " l "}, " m, n, o) \
      : WGMMA_FLOATS_##N : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds), "n"((int)B_ACROSS)); \
  } \
};
template <class T, int N, bool A_ACROSS, bool B_ACROSS> struct Wgmma;
WGMMA_COLUMNS(8, "%4", "%5", "%6", "%7", "%8", "%9", "%10")
WGMMA_COLUMNS(16, "%8", "%9", "%10", "%11", "%12", "%13", "%14")
WGMMA_COLUMNS(24, "%12", "%13", "%14", "%15", "%16", "%17", "%18")
WGMMA_COLUMNS(32, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
WGMMA_COLUMNS(40, "%20", "%21", "%22", "%23", "%24", "%25", "%26")
WGMMA_COLUMNS(48, "%24", "%25", "%26", "%27", "%28", "%29", "%30")
WGMMA_COLUMNS(56, "%28", "%29", "%30", "%31", "%32", "%33", "%34")
WGMMA_COLUMNS(64, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
WGMMA_COLUMNS(72, "%36", "%37", "%38", "%39", "%40", "%41", "%42")
WGMMA_COLUMNS(80, "%40", "%41", "%42", "%43", "%44", "%45", "%46")
WGMMA_COLUMNS(88, "%44", "%45", "%46", "%47", "%48", "%49", "%50")
WGMMA_COLUMNS(96, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
WGMMA_COLUMNS(104, "%52", "%53", "%54", "%55", "%56", "%57", "%58")
WGMMA_COLUMNS(112, "%56", "%57", "%58", "%59", "%60", "%61", "%62")
WGMMA_COLUMNS(120, "%60", "%61", "%62", "%63", "%64", "%65", "%66")
WGMMA_COLUMNS(128, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
WGMMA_COLUMNS(136, "%68", "%69", "%70", "%71", "%72", "%73", "%74")
WGMMA_COLUMNS(144, "%72", "%73", "%74", "%75", "%76", "%77", "%78")
WGMMA_COLUMNS(152, "%76", "%77", "%78", "%79", "%80", "%81", "%82")
WGMMA_COLUMNS(160, "%80", "%81", "%82", "%83", "%84", "%85", "%86")
WGMMA_COLUMNS(168, "%84", "%85", "%86", "%87", "%88", "%89", "%90")
WGMMA_COLUMNS(176, "%88", "%89", "%90", "%91", "%92", "%93", "%94")
WGMMA_COLUMNS(184, "%92", "%93", "%94", "%95", "%96", "%97", "%98")
WGMMA_COLUMNS(192, "%96", "%97", "%98", "%99", "%100", "%101", "%102")
WGMMA_COLUMNS(200, "%100", "%101", "%102", "%103", "%104", "%105", "%106")
WGMMA_COLUMNS(208, "%104", "%105", "%106", "%107", "%108", "%109", "%110")
WGMMA_COLUMNS(216, "%108", "%109", "%110", "%111", "%112", "%113", "%114")
WGMMA_COLUMNS(224, "%112", "%113", "%114", "%115", "%116", "%117", "%118")
WGMMA_COLUMNS(232, "%116", "%117", "%118", "%119", "%120", "%121", "%122")
WGMMA_COLUMNS(240, "%120", "%121", "%122", "%123", "%124", "%125", "%126")
WGMMA_COLUMNS(248, "%124", "%125", "%126", "%127", "%128", "%129", "%130")
WGMMA_COLUMNS(256, "%128", "%129", "%130", "%131", "%132", "%133", "%134")
// d[64 x N] = a[64 x 16] b[16 x N] (+ d if `adds`), by descriptors; ACROSS: the operand is MN-major. T: f16, bf16.
template <class T, int N, bool A_ACROSS = false, bool B_ACROSS = false>
VDEV void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, bool adds) {
  Wgmma<T, N, A_ACROSS, B_ACROSS>::run(d, a, b, adds);
}
// The same with a in registers: as mma_16x8x16 takes it, a warp's 16 rows each. They stay as they are until the wait.
template <class T, int N, bool B_ACROSS = false>
VDEV void wgmma(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool adds) {
  Wgmma<T, N, false, B_ACROSS>::run(d, a, b, adds);
}
