// gemv{rows=2,few=4,vec=4,x=32,y=4,per=1}
extern "C" __global__ void __launch_bounds__(128) k_fc2df177b903ed44(const float* RESTRICT in0, const float* RESTRICT in1, float* RESTRICT out0) {
  constexpr int TX = 32, TY = 4;
  GRID_ROWS(i0, 32) {
    Vec<float, 1> kv0[2];
    Vec<float, 4> av0_0 = splat<4>(bits<float>(0x80000000u));
    Vec<float, 4> av0_1 = splat<4>(bits<float>(0x80000000u));
    LANES_LOOP(i1, 4, 300, VECTORS(4, 300)) {
      const auto v1_0 = load<4, 4>(in0 + 600 * i0 + 300 * 0 + i1);
      const auto v1_1 = load<4, 4>(in0 + 600 * i0 + 300 * 1 + i1);
      const auto v2 = load<4, 4>(in1 + i1);
      av0_0 = fma_(v1_0, v2, av0_0);
      av0_1 = fma_(v1_1, v2, av0_1);
    }
    kv0[0] = join_x<TX, TY>(nullptr, [](const auto& a, const auto& b) { return add_(a, b); }, join_lanes([](const auto& a, const auto& b) { return add_(a, b); }, av0_0));
    kv0[1] = join_x<TX, TY>(nullptr, [](const auto& a, const auto& b) { return add_(a, b); }, join_lanes([](const auto& a, const auto& b) { return add_(a, b); }, av0_1));
    UNROLL(i2, 2) {
      FIRST_LANE store<1, 1>(out0 + 2 * i0 + i2, kv0[i2]);
    }
  }
}
// grid (8, 1, 1), block (32, 4, 1), 0 bytes of shared memory
