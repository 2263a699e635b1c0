// The vocabulary of device_sm90.cuh for the emulator: codegen/runtime/emulator/{phases,clusters,boxes,warp_groups}.h.
#pragma once
#define __cluster_dims__(...)  // read from the source by who compiles it
// The fields that the emulator's launcher fills in, in the size that the driver's encoding has. sizes, box: innermost axis
// first; strides, in bytes, from the second axis on.
struct alignas(64) TensorMap {
  uint64_t address, sizes[5], strides[4];
  uint32_t rank, element_bytes, swizzle, box[5];
};
static_assert(sizeof(TensorMap) == 128, "as the driver's");

extern "C" {
void emulator_barrier_init(uint32_t bar, int arrivals, emulator::Site site);
void emulator_barrier_arrive(uint32_t bar, uint32_t rank, bool own, uint32_t bytes, emulator::Site site);
void emulator_barrier_wait(uint32_t bar, uint32_t parity, emulator::Site site);
void emulator_fence_barrier_init();
void emulator_fence_async_shared();
void emulator_cluster_barrier(bool orders, emulator::Site site);
uint32_t emulator_cluster_rank();
void emulator_tensor_load(
    uint32_t to, const TensorMap* map, uint32_t bar, uint32_t mask, int rank, const int* coordinates, emulator::Site site);
void emulator_registers(int count, bool up, emulator::Site site);
void emulator_wgmma_fence(emulator::Site site);
void emulator_wgmma_commit(emulator::Site site);
void emulator_wgmma_wait(int groups, emulator::Site site);
void emulator_wgmma(
    float* d, int columns, bool bf16, const uint32_t* a_registers, uint64_t a, uint64_t b, bool a_across, bool b_across,
    bool adds, emulator::Site site);
}

inline void barrier_init(uint32_t bar, int arrivals, FP_SITE) { emulator_barrier_init(bar, arrivals, site); }
inline void barrier_expect(uint32_t bar, uint32_t bytes, FP_SITE) { emulator_barrier_arrive(bar, 0, true, bytes, site); }
inline void barrier_arrive(uint32_t bar, FP_SITE) { emulator_barrier_arrive(bar, 0, true, 0, site); }
inline void barrier_arrive_at(uint32_t bar, uint32_t rank, FP_SITE) { emulator_barrier_arrive(bar, rank, false, 0, site); }
inline void barrier_wait(uint32_t bar, uint32_t parity, FP_SITE) { emulator_barrier_wait(bar, parity, site); }
inline void fence_barrier_init() { emulator_fence_barrier_init(); }
inline void fence_async_shared() { emulator_fence_async_shared(); }
inline void cluster_barrier(FP_SITE) { emulator_cluster_barrier(true, site); }
inline void cluster_meet(FP_SITE) { emulator_cluster_barrier(false, site); }
inline uint32_t cluster_rank() { return emulator_cluster_rank(); }

// A first parameter that takes its caller's place with it, where the last ones are a pack.
struct PlacedAddress {
  uint32_t address;
  emulator::Site site;
  PlacedAddress(uint32_t address, FP_SITE) : address(address), site(site) {}
};
template <int RANK, class... C> inline void tensor_load(PlacedAddress to, const TensorMap& map, uint32_t bar, C... coordinates) {
  static_assert(sizeof...(C) == RANK && RANK >= 1 && RANK <= 5, "a coordinate for each axis, innermost first");
  const int c[5] = {coordinates...};
  emulator_tensor_load(to.address, &map, bar, 0, RANK, c, to.site);
}
template <int RANK, class... C>
inline void tensor_load_multicast(PlacedAddress to, const TensorMap& map, uint32_t bar, uint16_t mask, C... coordinates) {
  static_assert(sizeof...(C) == RANK && RANK >= 1 && RANK <= 5, "a coordinate for each axis, innermost first");
  const int c[5] = {coordinates...};
  emulator_tensor_load(to.address, &map, bar, 0x10000u | mask, RANK, c, to.site);
}
inline void tensor_prefetch(const TensorMap&) {}

template <int N> inline void registers_up(FP_SITE) { emulator_registers(N, true, site); }
template <int N> inline void registers_down(FP_SITE) { emulator_registers(N, false, site); }
inline void wgmma_fence(FP_SITE) { emulator_wgmma_fence(site); }
inline void wgmma_commit(FP_SITE) { emulator_wgmma_commit(site); }
template <int N> inline void wgmma_wait(FP_SITE) { emulator_wgmma_wait(N, site); }
template <class T, int N, bool A_ACROSS = false, bool B_ACROSS = false>
inline void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, bool adds, FP_SITE) {
  static_assert(SAME<T, f16> || SAME<T, bf16>, "16-bit floats");
  static_assert(N % 8 == 0 && N >= 8 && N <= 256, "columns of a wgmma");
  emulator_wgmma(d, N, SAME<T, bf16>, nullptr, a, b, A_ACROSS, B_ACROSS, adds, site);
}
template <class T, int N, bool B_ACROSS = false>
inline void wgmma(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool adds, FP_SITE) {
  static_assert(SAME<T, f16> || SAME<T, bf16>, "16-bit floats");
  static_assert(N % 8 == 0 && N >= 8 && N <= 256, "columns of a wgmma");
  emulator_wgmma(d, N, SAME<T, bf16>, a, 0, b, false, B_ACROSS, adds, site);
}
