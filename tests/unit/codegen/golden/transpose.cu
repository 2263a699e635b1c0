extern "C" __global__ void __launch_bounds__(256) k_49e4b686c06934c5(const float* RESTRICT in0, const bf16* RESTRICT in1, float* RESTRICT out0, float* RESTRICT out1) {
  constexpr int TX = 8, TY = 32;
  SHARED_MEMORY(shared);
  constexpr int JOINED_X = 0, JOINED = 0;
  GRID(g0, 352) {
    const idx_t i0 = g0 / 22;
    const idx_t i1 = g0 % 22;
    block_barrier();
    SharedTile<bf16, 32, 32, 4> (&t0) = *(SharedTile<bf16, 32, 32, 4>(*))(shared + JOINED + 0);
    fill<TX, TY, 8, 8, false>(t0, in1 + (16384 * i1 + 32 * i0), (idx_t)512, least_index(32, 700 - 32 * i1), 32);
    SharedTile<float, 32, 32, 4> (&t1) = *(SharedTile<float, 32, 32, 4>(*))(shared + JOINED + 2048);
    filled();
    ROWS_EVEN(i2, 32) {
      const idx_t i3_n = least_index(32, 700 - 32 * i1);
      LANES(i3, 4, i3_n, VECTORS(4, 32)) {
        const auto v0 = load<4, 4>(in0 + (22400 * i0 + 700 * i2 + 32 * i1 + i3));
        const auto v1 = t0.down<4>(i3, i2, 4);
        const auto v2 = cast<float>(v1);
        const auto v3 = add_(v0, v2);
        store<4, 4>(out0 + (22400 * i0 + 700 * i2 + 32 * i1 + i3), v3);
        t1.put(i2, i3, v3);
      }
    }
    block_barrier();
    empty<TX, TY, 16, 16, false>(out1 + (16384 * i1 + 32 * i0), (idx_t)512, t1, 32, least_index(32, 700 - 32 * i1));
  }
}
// grid (352, 1, 1), block (8, 32, 1)
