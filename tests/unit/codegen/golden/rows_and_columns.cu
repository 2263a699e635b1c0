// reduction{vec=4,x=32,y=16,per=1,keep=registers,dear=0}
extern "C" __global__ void __launch_bounds__(512) k_dac6d7a0b627ac07(const float* RESTRICT in0, float* RESTRICT out0, float* RESTRICT out1) {
  constexpr int TX = 32, TY = 16;
  SHARED_MEMORY(shared);
  constexpr int JOINED_X = 0, JOINED = 8192;
  Vec<float, 4> kv0[VECTORS(4, 96)];
  UNROLL(i0_v, VECTORS(4, 96)) kv0[i0_v] = splat<4>(bits<float>(0xff800000u));
  ROWS_APART(i1, 48) {
    Vec<float, 4> av1 = splat<4>(bits<float>(0x80000000u));
    LANES(i0, 4, 96, VECTORS(4, 96)) {
      const auto v2 = load<4, 4>(in0 + 96 * i1 + i0);
      av1 = add_(av1, v2);
      kv0[i0_v] = maximum_(kv0[i0_v], v2);
    }
    const auto v1 = join_x<TX, TY>(nullptr, [](const auto& a, const auto& b) { return add_(a, b); }, join_lanes([](const auto& a, const auto& b) { return add_(a, b); }, av1));
    ONCE FIRST_LANE store<1, 1>(out0 + i1, v1);
  }
  UNROLL(i0_v, VECTORS(4, 96)) kv0[i0_v] = join_y<TX, TY>(shared + JOINED_X, [](const auto& a, const auto& b) { return maximum_(a, b); }, kv0[i0_v]);
  ONCE FIRST_ROW {
    LANES(i0, 4, 96, VECTORS(4, 96)) {
      store<4, 4>(out1 + i0, kv0[i0_v]);
    }
  }
}
// grid (1, 1, 1), block (32, 16, 1), 8192 bytes of shared memory
