extern "C" void k_fc61a12fe7c7fa68(void* const* args, long task, long tasks) {
  const bf16* RESTRICT in0 = (const bf16*)args[0];
  const int64_t* RESTRICT in1 = (const int64_t*)args[1];
  bf16* RESTRICT out0 = (bf16*)args[2];
  {
    const auto lists0_place = [&](idx_t i0) -> int64_t {
      const auto v0 = load<1, 1>(in1 + i0);
      const auto v1 = eq_(v0, splat<1>(bits<int64_t>(0x3ull)));
      const auto v2 = where_(v1, splat<1>(bits<int64_t>(0xffffffffffffffffull)), v0);
      return get(v2, 0);
    };
    const SliceLists<512, 5000> lists0((idx_t)(5000 * task / tasks), (idx_t)(5000 * (task + 1) / tasks), lists0_place);
    GRID(i0, 5000) {
      Vec<float, 32> kv0[VECTORS(32, 768)];
      LOOP(i1_v, VECTORS(32, 768)) kv0[i1_v] = splat<32>(bits<float>(0x0u));
      WALK(i2, lists0, i0) {
        const auto v1 = splat<1>((int64_t)lists0.order[i2]);
        LANES(i1, 32, 768, VECTORS(32, 768)) {
          const auto v2 = load_pairs<32, 8>(in0 + 768 * (idx_t)get(v1, 0) + i1);
          const auto v3 = cast<float>(v2);
          kv0[i1_v] = add_(kv0[i1_v], v3);
        }
      }
      LANES(i1, 32, 768, VECTORS(32, 768)) {
        const auto v4 = round_pairs(kv0[i1_v]);
        store_stream<32, 32>(out0 + 768 * i0 + i1, v4);
      }
    }
  }
  stream_fence();
}
