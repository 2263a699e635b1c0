extern "C" __global__ void __launch_bounds__(128) k_1f7b84b013a0ebc8(const float* RESTRICT in0, const bf16* RESTRICT in1, float* RESTRICT out0, float* RESTRICT out1) {
  constexpr int TX = 4, TY = 32;
  SHARED_MEMORY(shared);
  constexpr int JOINED_X = 0, JOINED = 0;
  GRID(g0, 320) {
    const idx_t i0 = g0 / 20;
    const idx_t i1 = g0 % 20;
    Vec<float, 8> e0[1][1];
    ROWS_EVEN(i2, 32) LANES_EVEN(i3, 8, 32, VECTORS(8, 32)) e0[i2_r][i3_v] = load_early<8, 4>(in0 + (20480 * i0 + 640 * i2 + 32 * i1 + i3));
    block_barrier();
    SharedTile<bf16, 32, 32, 8> (&t0) = *(SharedTile<bf16, 32, 32, 8>(*))(shared + JOINED + 0);
    fill<TX, TY, 8, 8, true>(t0, in1 + (16384 * i1 + 32 * i0), (idx_t)512, 32, 32);
    SharedTile<float, 32, 32, 4> (&t1) = *(SharedTile<float, 32, 32, 4>(*))(shared + JOINED + 2048);
    filled();
    ROWS_EVEN(i2, 32) {
      LANES_EVEN(i3, 8, 32, VECTORS(8, 32)) {
        const auto v0 = e0[i2_r][i3_v];
        const auto v1 = t0.down_by_warp<TX>(i3, i2);
        const auto v2 = cast<float>(v1);
        const auto v3 = add_(v0, v2);
        store<8, 8>(out0 + (20480 * i0 + 640 * i2 + 32 * i1 + i3), v3);
        t1.put(i2, i3, v3);
      }
    }
    block_barrier();
    empty<TX, TY, 16, 16, true>(out1 + (16384 * i1 + 32 * i0), (idx_t)512, t1, 32, 32);
  }
}
// grid (320, 1, 1), block (4, 32, 1)
