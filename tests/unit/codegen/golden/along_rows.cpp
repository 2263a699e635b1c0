extern "C" void k_edc57ace33b875a1(void* const* args, long task, long tasks) {
  const float* RESTRICT in0 = (const float*)args[0];
  const int64_t* RESTRICT in1 = (const int64_t*)args[1];
  float* RESTRICT out0 = (float*)args[2];
  GRID(i0, 64) {
    ROWS(i1, 2) {
      const idx_t i2_n = least_index(288, 300 - 288 * i1);
      LANES(i2, 16, i2_n, VECTORS(16, 288)) {
        const auto v0 = load<16, 2>(in1 + 300 * i0 + 288 * i1 + i2);
        const auto v1 = minimum_(v0, splat<16>(bits<int64_t>(0x3e7ull)));
        const auto v2 = maximum_(v1, splat<16>(bits<int64_t>(0x0ull)));
        const auto v3 = load_lanes<16>([&](int l) { return in0[1000 * i0 + (idx_t)get(v2, l)]; }, 16);
        store<16, 4>(out0 + 300 * i0 + 288 * i1 + i2, v3);
      }
      TAIL(i2, 16, i2_n, VECTORS(16, 288)) {
        const auto v0 = load_masked<16, 2>(in1 + 300 * i0 + 288 * i1 + i2, 12);
        const auto v1 = minimum_(v0, splat<16>(bits<int64_t>(0x3e7ull)));
        const auto v2 = maximum_(v1, splat<16>(bits<int64_t>(0x0ull)));
        const auto v3 = load_lanes<16>([&](int l) { return in0[1000 * i0 + (idx_t)get(v2, l)]; }, 12);
        store_masked<16, 4>(out0 + 300 * i0 + 288 * i1 + i2, v3, 12);
      }
    }
  }
}
