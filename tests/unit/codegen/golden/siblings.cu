extern "C" __global__ void __launch_bounds__(256) k_2c66b8513699c9a1(const float* RESTRICT in0, const f16* RESTRICT in1, float* RESTRICT out0, f16* RESTRICT out1) {
  constexpr int TX = 16, TY = 16;
  GRID_ROWS(i0, 16) {
    const idx_t i1_n = least_index(64, 1000 - 64 * i0);
    LANES(i1, 4, i1_n, VECTORS(4, 64)) {
      const auto v0 = load<4, 4>(in0 + 64 * i0 + i1);
      const auto v1 = exp_(v0);
      store<4, 4>(out0 + 64 * i0 + i1, v1);
    }
  }
  GRID_ROWS(i2, 4) {
    const idx_t i3_n = least_index(64, 231 - 64 * i2);
    LANES(i3, 4, i3_n, VECTORS(4, 64)) {
      const auto v2 = load<4, 4>(in1 + 64 * i2 + i3);
      const auto v3 = cast<float>(v2);
      const auto v4 = neg_(v3);
      const auto v5 = cast<f16>(v4);
      store<4, 4>(out1 + 64 * i2 + i3, v5);
    }
    TAIL(i3, 4, i3_n, VECTORS(4, 64)) {
      const auto v2 = load_masked<4, 1, 1>(in1 + 64 * i2 + i3, i3_n - i3);
      const auto v3 = cast<float>(v2);
      const auto v4 = neg_(v3);
      const auto v5 = cast<f16>(v4);
      store_masked<4, 1, 1>(out1 + 64 * i2 + i3, v5, i3_n - i3);
    }
  }
}
// grid (1, 1, 1), block (16, 16, 1)
