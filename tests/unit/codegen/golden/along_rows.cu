extern "C" __global__ void __launch_bounds__(256) k_d1e0c92d4fb91f55(const float* RESTRICT in0, const int64_t* RESTRICT in1, float* RESTRICT out0) {
  constexpr int TX = 16, TY = 16;
  GRID_ROWS(g0, 320) {
    const idx_t i0 = g0 / 5;
    const idx_t i1 = g0 % 5;
    const idx_t i2_n = least_index(64, 300 - 64 * i1);
    LANES(i2, 4, i2_n, VECTORS(4, 64)) {
      const auto v0 = load<4, 2>(in1 + 300 * i0 + 64 * i1 + i2);
      const auto v1 = minimum_(v0, splat<4>(bits<int64_t>(0x3e7ull)));
      const auto v2 = maximum_(v1, splat<4>(bits<int64_t>(0x0ull)));
      const auto v3 = load_lanes<4>([&](int l) { return read(in0 + 1000 * i0 + (idx_t)get(v2, l)); }, 4);
      store<4, 4>(out0 + 300 * i0 + 64 * i1 + i2, v3);
    }
  }
}
// grid (20, 1, 1), block (16, 16, 1)
