extern "C" void k_dde06fa3821a956d(void* const* args, long task, long tasks) {
  const float* RESTRICT in0 = (const float*)args[0];
  const int64_t* RESTRICT in1 = (const int64_t*)args[1];
  float* RESTRICT out0 = (float*)args[2];
  {
    const auto lists0_place = [&](idx_t i0) -> int64_t {
      const auto v0 = load<1, 1>(in1 + i0);
      return get(v0, 0);
    };
    const SliceLists<70, 20> lists0((idx_t)(20 * task / tasks), (idx_t)(20 * (task + 1) / tasks), lists0_place);
    GRID(i0, 20) {
      Vec<float, 32> kv0[VECTORS(32, 150)];
      LOOP(i1_v, VECTORS(32, 150)) kv0[i1_v] = splat<32>(bits<float>(0x0u));
      WALK(i2, lists0, i0) {
        const auto v1 = splat<1>((int64_t)lists0.order[i2]);
        LANES(i1, 32, 150, VECTORS(32, 150)) {
          const auto v2 = load_strided<32>(in0 + 70 * i1 + (idx_t)get(v1, 0), 70, 32);
          kv0[i1_v] = add_(kv0[i1_v], v2);
        }
        TAIL(i1, 32, 150, VECTORS(32, 150)) {
          const auto v2 = load_strided<32>(in0 + 70 * i1 + (idx_t)get(v1, 0), 70, 22);
          kv0[i1_v] = first_lanes(22, add_(kv0[i1_v], v2), kv0[i1_v]);
        }
      }
      LANES(i1, 32, 150, VECTORS(32, 150)) {
        store_strided<32>(out0 + 20 * i1 + i0, 20, kv0[i1_v], 32);
      }
      TAIL(i1, 32, 150, VECTORS(32, 150)) {
        store_strided<32>(out0 + 20 * i1 + i0, 20, kv0[i1_v], 22);
      }
    }
  }
  stream_fence();
}
