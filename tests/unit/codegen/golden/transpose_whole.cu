extern "C" __global__ void __launch_bounds__(64) k_7917d0687acf4ea3(const float* RESTRICT in0, const bf16* RESTRICT in1, float* RESTRICT out0, float* RESTRICT out1) {
  constexpr int TX = 4, TY = 16;
  SHARED_MEMORY(shared);
  constexpr int JOINED_X = 0, JOINED = 0;
  GRID(g0, 704) {
    const idx_t i0 = g0 / 22;
    const idx_t i1 = g0 % 22;
    block_barrier();
    SharedTile<bf16, 32, 16, 8> (&t0) = *(SharedTile<bf16, 32, 16, 8>(*))(shared + JOINED + 0);
    fill<TX, TY, 8, false>(t0, in1 + (16384 * i1 + 16 * i0), 512, least_index(32, 700 - 32 * i1), 16);
    SharedTile<float, 16, 32, 4> (&t1) = *(SharedTile<float, 16, 32, 4>(*))(shared + JOINED + 1024);
    filled();
    ROWS_EVEN(i2, 16) {
      const idx_t i3_n = least_index(32, 700 - 32 * i1);
      LANES(i3, 8, i3_n, VECTORS(8, 32)) {
        const auto v0 = load<8, 4>(in0 + (11200 * i0 + 700 * i2 + 32 * i1 + i3));
        const auto v1 = t0.down<8>(i3, i2, 8);
        const auto v2 = cast<float>(v1);
        const auto v3 = add_(v0, v2);
        store<8, 4>(out0 + (11200 * i0 + 700 * i2 + 32 * i1 + i3), v3);
        t1.put(i2, i3, v3);
      }
      TAIL(i3, 8, i3_n, VECTORS(8, 32)) {
        const auto v0 = load_masked<8, 4>(in0 + (11200 * i0 + 700 * i2 + 32 * i1 + i3), i3_n - i3);
        const auto v1 = t0.down<8>(i3, i2, i3_n - i3);
        const auto v2 = cast<float>(v1);
        const auto v3 = add_(v0, v2);
        store_masked<8, 4>(out0 + (11200 * i0 + 700 * i2 + 32 * i1 + i3), v3, i3_n - i3);
        t1.put(i2, i3, v3);
      }
    }
    block_barrier();
    empty<TX, TY, 16, false>(out1 + (16384 * i1 + 16 * i0), 512, t1, 16, least_index(32, 700 - 32 * i1));
  }
}
// grid (704, 1, 1), block (4, 16, 1)
