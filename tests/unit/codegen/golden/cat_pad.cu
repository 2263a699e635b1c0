extern "C" __global__ void __launch_bounds__(256) k_501dfb6ac2164c88(const float* RESTRICT in0, const float* RESTRICT in1, float* RESTRICT out0) {
  constexpr int TX = 16, TY = 16;
  const auto v0 = abs_(splat<1>(bits<float>(0x0u)));
  GRID_ROWS(i0, 64) {
    FIRST_LANE store<1, 1>(out0 + 85 * i0, v0);
    LANES(i1, 2, 2, VECTORS(2, 2)) {
      store<2, 1>(out0 + 85 * i0 + i1 + 83, splat<2>(v0));
    }
    LANES(i2, 4, 32, VECTORS(4, 32)) {
      const auto v1 = load<4, 4>(in0 + 32 * i0 + i2);
      const auto v2 = abs_(v1);
      store<4, 1>(out0 + 85 * i0 + i2 + 1, v2);
    }
    LANES(i3, 4, 50, VECTORS(4, 50)) {
      const auto v3 = load<4, 2>(in1 + 50 * i0 + i3);
      const auto v4 = abs_(v3);
      store<4, 1>(out0 + 85 * i0 + i3 + 33, v4);
    }
    TAIL(i3, 4, 50, VECTORS(4, 50)) {
      const auto v3 = load_masked<4, 2, 2>(in1 + 50 * i0 + i3, 50 - i3);
      const auto v4 = abs_(v3);
      store_masked<4, 1, 1>(out0 + 85 * i0 + i3 + 33, v4, 50 - i3);
    }
  }
}
// grid (4, 1, 1), block (16, 16, 1)
