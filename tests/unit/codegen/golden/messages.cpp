extern "C" void k_ade7e2fe0719bbb1(void* const* args, long task, long tasks) {
  const float* RESTRICT in0 = (const float*)args[0];
  const int32_t* RESTRICT in1 = (const int32_t*)args[1];
  const int64_t* RESTRICT in2 = (const int64_t*)args[2];
  const float* RESTRICT in3 = (const float*)args[3];
  float* RESTRICT out0 = (float*)args[4];
  {
    const auto lists0_place = [&](idx_t i0) -> int64_t {
      const auto v0 = load<1, 1>(in2 + i0);
      return get(v0, 0);
    };
    const SliceLists<9000, 1000> lists0((idx_t)(1000 * task / tasks), (idx_t)(1000 * (task + 1) / tasks), lists0_place);
    GRID(i0, 1000) {
      Vec<float, 32> kv0[VECTORS(32, 64)];
      LOOP(i1_v, VECTORS(32, 64)) kv0[i1_v] = splat<32>(bits<float>(0x0u));
      WALK(i2, lists0, i0) {
        const auto v1 = splat<1>((int64_t)lists0.order[i2]);
        const auto v2 = load<1, 1>(in1 + (idx_t)get(v1, 0));
        const auto v3 = minimum_(v2, splat<1>(bits<int32_t>(0x3e7u)));
        const auto v4 = maximum_(v3, splat<1>(bits<int32_t>(0x0u)));
        const auto v5 = load<1, 1>(in3 + (idx_t)get(v1, 0));
        LANES(i1, 32, 64, VECTORS(32, 64)) {
          const auto v6 = load<32, 4>(in0 + 64 * (idx_t)get(v4, 0) + i1);
          const auto v7 = mul_(v6, splat<32>(v5));
          kv0[i1_v] = add_(kv0[i1_v], v7);
        }
      }
      LANES(i1, 32, 64, VECTORS(32, 64)) {
        const auto v8 = load<32, 4>(in0 + 64 * i0 + i1);
        const auto v9 = add_(v8, kv0[i1_v]);
        store_stream<32, 16>(out0 + 64 * i0 + i1, v9);
      }
    }
  }
  stream_fence();
}
