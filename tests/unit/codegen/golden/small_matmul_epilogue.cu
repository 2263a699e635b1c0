extern "C" __global__ void __launch_bounds__(256) k_0851028d712e30c8(const float* RESTRICT in0, const float* RESTRICT in1, const float* RESTRICT in2, const float* RESTRICT in3, float* RESTRICT out0) {
  constexpr int TX = 16, TY = 16;
  GRID_ROWS(g0, 2048) {
    const idx_t i0 = g0 / 8;
    const idx_t i1 = g0 % 8;
    const auto v0 = load<1, 1>(in0 + 2 * i0);
    const auto v1 = load<1, 1>(in0 + 2 * i0 + 1);
    LANES_WHOLE(i2, 4, 64, VECTORS(4, 64)) {
      const auto v2 = load<4, 4>(in1 + 64 * i1 + i2);
      const auto v3 = mul_(splat<4>(v0), v2);
      const auto v4 = load<4, 4>(in1 + 64 * i1 + i2 + 512);
      const auto v5 = fma_(splat<4>(v1), v4, v3);
      const auto v6 = load<4, 4>(in3 + 64 * i1 + i2);
      const auto v7 = add_(v5, v6);
      const auto v8 = load<4, 4>(in2 + 512 * i0 + 64 * i1 + i2);
      const auto v9 = add_(v7, v8);
      const auto v10 = relu_(v9);
      store<4, 4>(out0 + 512 * i0 + 64 * i1 + i2, v10);
    }
  }
}
// grid (128, 1, 1), block (16, 16, 1)
