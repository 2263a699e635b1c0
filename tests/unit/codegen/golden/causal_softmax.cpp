extern "C" INTERLEAVED void k_cdc3da43d5b7dff0(void* const* args, long task, long tasks) {
  const float* RESTRICT in0 = (const float*)args[0];
  float* RESTRICT out0 = (float*)args[1];
  GRID(g0, 128) {
    const idx_t i0 = g0 / 64;
    const idx_t i1 = g0 % 64;
    Vec<float, 32> kv0[VECTORS(32, 96)];
    Vec<float, 32> av1 = splat<32>(bits<float>(0xff800000u));
    const auto v2 = iota_<int32_t, 1>(i1);
    LANES(i2, 32, 96, VECTORS(32, 96)) {
      fetch_once<128>(in0 + 6144 * i0 + 96 * i1 + i2 + 256);
      const auto v3 = iota_<int32_t, 32>(i2);
      const auto v4 = le_(v3, splat<32>(v2));
      const auto v5 = load<32, 4>(in0 + 6144 * i0 + 96 * i1 + i2);
      const auto v6 = mul_(v5, splat<32>(bits<float>(0x3e000000u)));
      const auto v0 = where_(v4, v6, splat<32>(bits<float>(0xff800000u))); kv0[i2_v] = v0;
      av1 = maximum_(av1, v0);
    }
    const auto v1 = join_lanes([](const auto& a, const auto& b) { return maximum_(a, b); }, av1);
    Vec<float, 32> kv7[VECTORS(32, 96)];
    Vec<float, 32> av8 = splat<32>(bits<float>(0x80000000u));
    LANES(i2, 32, 96, VECTORS(32, 96)) {
      fetch<128>(in0 + 6144 * i0 + 96 * i1 + i2 + 96);
      const auto v9 = sub_(kv0[i2_v], splat<32>(v1));
      const auto v7 = exp_(v9); kv7[i2_v] = v7;
      av8 = add_(av8, v7);
    }
    const auto v8 = join_lanes([](const auto& a, const auto& b) { return add_(a, b); }, av8);
    LANES(i2, 32, 96, VECTORS(32, 96)) {
      const auto v10 = divided_(kv7[i2_v], v8);
      store<32, 16>(out0 + 6144 * i0 + 96 * i1 + i2, v10);
    }
  }
}
