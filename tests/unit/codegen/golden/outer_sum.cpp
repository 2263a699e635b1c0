extern "C" void k_df69c7bc482d5b3c(void* const* args, long task, long tasks) {
  const float* RESTRICT in0 = (const float*)args[0];
  float* RESTRICT out0 = (float*)args[1];
  GRID(i0, 2) {
    Vec<float, 32> kv0[VECTORS(32, 64)];
    LOOP(i1_v, VECTORS(32, 64)) kv0[i1_v] = splat<32>(bits<float>(0x80000000u));
    ROWS(i2, 256) {
      const idx_t i1_n = least_index(64, 96 - 64 * i0);
      LANES(i1, 32, i1_n, VECTORS(32, 64)) {
        const auto v1 = load<32, 4>(in0 + 96 * i2 + 64 * i0 + i1);
        kv0[i1_v] = add_(kv0[i1_v], v1);
      }
    }
    const idx_t i1_n = least_index(64, 96 - 64 * i0);
    LANES(i1, 32, i1_n, VECTORS(32, 64)) {
      store<32, 16>(out0 + 64 * i0 + i1, kv0[i1_v]);
    }
  }
}
