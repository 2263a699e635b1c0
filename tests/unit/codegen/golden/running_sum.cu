extern "C" __global__ void __launch_bounds__(64) k_6ac6a7ea65038cf1(const float* RESTRICT in0, float* RESTRICT out0) {
  constexpr int TX = 64, TY = 1;
  SHARED_MEMORY(shared);
  constexpr int JOINED_X = 0, JOINED = 0;
  GRID_ROWS(i0, 64) {
    auto c0 = no_carry<4>(bits<int32_t>(0x0u));
    IN_STEP(i1, 4, 1000, VECTORS(4, 1000)) {
      const auto v0 = load_masked<4, 4, 4>(in0 + 1000 * i0 + i1, i1_left);
      const auto v1 = gt_(v0, splat<4>(bits<float>(0x0u)));
      const auto v2 = cast<int32_t>(v1);
      const auto v3 = scan_x<TX, TY>(shared + JOINED + 0, [](const auto& a, const auto& b) { return add_(a, b); }, c0, v2);
      const auto v4 = cast<float>(v3);
      const auto v5 = mul_(v4, v0);
      store_masked<4, 4, 4>(out0 + 1000 * i0 + i1, v5, i1_left);
    }
  }
}
// grid (64, 1, 1), block (64, 1, 1)
