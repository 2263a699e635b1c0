extern "C" __global__ void __launch_bounds__(64) k_warp_transpose(const int* RESTRICT in0, int* RESTRICT out0) {
  SHARED_MEMORY(shared);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int* const tile = (int*)shared + warp * 32 * 33;
  for (int row = 0; row < 32; row++) shared_store(tile + row * 33 + lane, load<1, 1>(in0 + (warp * 32 + row) * 32 + lane));
  warp_barrier();
  for (int row = 0; row < 32; row++) store<1, 1>(out0 + (warp * 32 + row) * 32 + lane, shared_load<int, 1>(tile + lane * 33 + row));
}
