extern "C" __global__ void __launch_bounds__(256) k_5879d998ef7aa9d8(const bf16* RESTRICT in0, bf16* RESTRICT out0) {
  constexpr int TX = 16, TY = 16;
  GRID_ROWS(g0, 128) {
    const idx_t i0 = g0 / 2;
    const idx_t i1 = g0 % 2;
    LANES_WHOLE(i2, 4, 64, VECTORS(4, 64)) {
      const auto v0 = load_strided<4>(in0 + 4096 * i1 + 64 * i2 + i0, 64, 4);
      const auto v1 = cast<float>(v0);
      const auto v2 = neg_(v1);
      const auto v3 = cast_exact<bf16>(v2);
      store<4, 4>(out0 + 128 * i0 + 64 * i1 + i2, v3);
    }
  }
}
// grid (8, 1, 1), block (16, 16, 1)
