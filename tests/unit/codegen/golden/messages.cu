extern "C" __global__ void __launch_bounds__(256) k_83d6bf8c8e995c40(const float* RESTRICT in0, const int32_t* RESTRICT in1, const int64_t* RESTRICT in2, const float* RESTRICT in3, float* RESTRICT out0) {
  constexpr int TX = 1, TY = 256;
  GRID_ROWS(e0, 64000) {
    const idx_t i0 = e0 / 64;
    const idx_t i1 = e0 % 64;
    const auto v0 = load<1, 1>(in0 + 64 * i0 + i1);
    const auto v1 = splat<1>((int64_t)(i0));
    Vec<float, 1> v2 = splat<1>(bits<float>(0x0u));
    LOOP(i2, 9000) {
      const auto v3 = load<1, 1>(in2 + i2);
      const auto v4 = eq_(v3, v1);
      if (get(v4, 0).u) {
        const auto v5 = load<1, 1>(in1 + i2);
        const auto v6 = minimum_(v5, splat<1>(bits<int32_t>(0x3e7u)));
        const auto v7 = maximum_(v6, splat<1>(bits<int32_t>(0x0u)));
        const auto v8 = load<1, 1>(in0 + 64 * (idx_t)get(v7, 0) + i1);
        const auto v9 = load<1, 1>(in3 + i2);
        const auto v10 = mul_(v8, v9);
        v2 = add_(v2, v10);
      }
    }
    const auto v11 = add_(v0, v2);
    store<1, 1>(out0 + 64 * i0 + i1, v11);
  }
}
