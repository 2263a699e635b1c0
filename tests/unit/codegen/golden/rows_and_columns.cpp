extern "C" void k_d01c53f9afd54339(void* const* args, long task, long tasks) {
  const float* RESTRICT in0 = (const float*)args[0];
  float* RESTRICT out0 = (float*)args[1];
  float* RESTRICT out1 = (float*)args[2];
  Vec<float, 32> kv0[VECTORS(32, 96)];
  LOOP(i0_v, VECTORS(32, 96)) kv0[i0_v] = splat<32>(bits<float>(0xff800000u));
  LOOP(i1, 48) {
    Vec<float, 32> av1 = splat<32>(bits<float>(0x80000000u));
    LANES(i0, 32, 96, VECTORS(32, 96)) {
      fetch_once<128>(in0 + 96 * i1 + i0 + 256);
      const auto v2 = load<32, 4>(in0 + 96 * i1 + i0);
      av1 = add_(av1, v2);
      kv0[i0_v] = maximum_(kv0[i0_v], v2);
    }
    const auto v1 = join_lanes([](const auto& a, const auto& b) { return add_(a, b); }, av1);
    ONCE store<1, 1>(out0 + i1, v1);
  }
  ONCE {
    LANES(i0, 32, 96, VECTORS(32, 96)) {
      store<32, 16>(out1 + i0, kv0[i0_v]);
    }
  }
}
