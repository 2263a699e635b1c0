extern "C" __global__ void __launch_bounds__(256) k_0b17d25f54975ee1(const int64_t* RESTRICT in0, int64_t* RESTRICT out0) {
  constexpr int TX = 1, TY = 256;
  GRID_ROWS(e0, 100) {
    const idx_t i0 = e0;
    const auto v0 = splat<1>((int64_t)(i0));
    Vec<int64_t, 1> v1 = splat<1>(bits<int64_t>(0x0ull));
    LOOP(i1, 9000) {
      const auto v2 = load<1, 1>(in0 + i1);
      const auto v3 = eq_(v2, v0);
      if (get(v3, 0).u) {
        v1 = add_(v1, splat<1>(bits<int64_t>(0x1ull)));
      }
    }
    store<1, 1>(out0 + i0, v1);
  }
}
