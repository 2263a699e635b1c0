// normalization{vec=4,x=16,y=4,per=1,keep=registers,dear=0}
extern "C" __global__ void __launch_bounds__(64) k_6799939c85269f0d(const float* RESTRICT in0, const float* RESTRICT in1, float* RESTRICT out0) {
  constexpr int TX = 16, TY = 4;
  SHARED_MEMORY(shared);
  constexpr int JOINED_X = 0, JOINED = 1024;
  GRID(g0, 8) {
    const idx_t i0 = g0 / 2;
    const idx_t i1 = g0 % 2;
    Vec<float, 4> kv0[ROWS_OF(4)][VECTORS(4, 42)];
    Vec<float, 4> kv1[ROWS_OF(4)][VECTORS(4, 42)];
    Vec<float, 4> av2 = splat<4>(bits<float>(0x80000000u));
    ROWS_KEPT_WHOLE(i2, 4) {
      LANES(i3, 4, 42, VECTORS(4, 42)) {
        const auto v0 = load<4, 2>(in0 + 336 * i0 + 168 * i1 + 42 * i2 + i3); kv0[i2_r][i3_v] = v0;
        av2 = add_(av2, v0);
      }
      TAIL(i3, 4, 42, VECTORS(4, 42)) {
        const auto v0 = load_masked<4, 2, 2>(in0 + 336 * i0 + 168 * i1 + 42 * i2 + i3, 42 - i3); kv0[i2_r][i3_v] = v0;
        av2 = first_lanes(42 - i3, add_(av2, v0), av2);
      }
    }
    const auto v2 = join_y<TX, TY>(shared + JOINED_X, [](const auto& a, const auto& b) { return add_(a, b); }, join_x<TX, TY>(nullptr, [](const auto& a, const auto& b) { return add_(a, b); }, join_lanes([](const auto& a, const auto& b) { return add_(a, b); }, av2)));
    Vec<float, 4> av3 = splat<4>(bits<float>(0x80000000u));
    const auto v4 = div_(v2, splat<1>(bits<float>(0x43280000u)));
    ROWS_KEPT_WHOLE(i2, 4) {
      LANES(i3, 4, 42, VECTORS(4, 42)) {
        const auto v1 = sub_(kv0[i2_r][i3_v], splat<4>(v4)); kv1[i2_r][i3_v] = v1;
        const auto v5 = mul_(v1, v1);
        av3 = add_(av3, v5);
      }
      TAIL(i3, 4, 42, VECTORS(4, 42)) {
        const auto v1 = sub_(kv0[i2_r][i3_v], splat<4>(v4)); kv1[i2_r][i3_v] = v1;
        const auto v5 = mul_(v1, v1);
        av3 = first_lanes(42 - i3, add_(av3, v5), av3);
      }
    }
    const auto v3 = join_y<TX, TY>(shared + JOINED_X, [](const auto& a, const auto& b) { return add_(a, b); }, join_x<TX, TY>(nullptr, [](const auto& a, const auto& b) { return add_(a, b); }, join_lanes([](const auto& a, const auto& b) { return add_(a, b); }, av3)));
    const auto v6 = div_(v3, splat<1>(bits<float>(0x43280000u)));
    const auto v7 = add_(v6, splat<1>(bits<float>(0x3727c5acu)));
    const auto v8 = rsqrt_(v7);
    ROWS_KEPT_WHOLE(i2, 4) {
      const auto v9 = load<1, 1>(in1 + 4 * i1 + i2);
      LANES(i3, 4, 42, VECTORS(4, 42)) {
        const auto v10 = mul_(kv1[i2_r][i3_v], splat<4>(v8));
        const auto v11 = mul_(v10, splat<4>(v9));
        store<4, 2>(out0 + 336 * i0 + 168 * i1 + 42 * i2 + i3, v11);
      }
      TAIL(i3, 4, 42, VECTORS(4, 42)) {
        const auto v10 = mul_(kv1[i2_r][i3_v], splat<4>(v8));
        const auto v11 = mul_(v10, splat<4>(v9));
        store_masked<4, 2, 2>(out0 + 336 * i0 + 168 * i1 + 42 * i2 + i3, v11, 42 - i3);
      }
    }
  }
}
// grid (8, 1, 1), block (16, 4, 1), 1024 bytes of shared memory
