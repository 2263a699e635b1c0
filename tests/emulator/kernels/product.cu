extern "C" __global__ void __launch_bounds__(32) k_product(const bf16* RESTRICT in0, const bf16* RESTRICT in1, float* RESTRICT out0) {
  SHARED_MEMORY(shared);
  bf16 *const a_tile = (bf16*)shared, *const b_tile = (bf16*)(shared + 16 * 128);
  const int lane = threadIdx.x;
  for (int i = lane; i < 16 * 8; i += 32) shared_store(a_tile + (i / 8 * 8 + (i % 8 ^ i / 8 % 8)) * 8, load<8, 8>(in0 + i * 8));
  for (int i = lane; i < 8 * 8; i += 32) shared_store(b_tile + (i / 8 * 8 + (i % 8 ^ i / 8 % 8)) * 8, load<8, 8>(in1 + i * 8));
  warp_barrier();
  float d[4] = {};
  for (int k = 0; k < 4; k++) {
    uint32_t a[4], b[2];
    const int row = lane % 16, half = 2 * k + lane / 16, column = lane % 8, b_half = 2 * k + lane / 8 % 2;
    load_matrix_x4(a, shared_address(a_tile + (row * 8 + (half ^ row % 8)) * 8));
    load_matrix_x2(b, shared_address(b_tile + (column * 8 + (b_half ^ column)) * 8));
    mma_16x8x16<bf16>(d, a, b[0], b[1]);
  }
  for (int i = 0; i < 2; i++) store<2, 2>(out0 + (lane / 4 + 8 * i) * 8 + lane % 4 * 2, Vec<float, 2>{d[2 * i], d[2 * i + 1]});
}
