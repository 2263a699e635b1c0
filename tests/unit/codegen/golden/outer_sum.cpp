extern "C" void k_16a5b01334411221(void* const* args, long task, long tasks) {
  const float* RESTRICT in0 = (const float*)args[0];
  float* RESTRICT out0 = (float*)args[1];
  Vec<float, 32> kv0[VECTORS(32, 96)];
  LOOP(i0_v, VECTORS(32, 96)) kv0[i0_v] = splat<32>(bits<float>(0x80000000u));
  LOOP(i1, 256) {
    LANES(i0, 32, 96, VECTORS(32, 96)) {
      fetch_once<128>(in0 + 96 * i1 + i0 + 256);
      const auto v1 = load<32, 4>(in0 + 96 * i1 + i0);
      kv0[i0_v] = add_(kv0[i0_v], v1);
    }
  }
  ONCE {
    LANES(i0, 32, 96, VECTORS(32, 96)) {
      store<32, 16>(out0 + i0, kv0[i0_v]);
    }
  }
}
