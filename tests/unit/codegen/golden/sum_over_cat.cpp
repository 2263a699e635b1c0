extern "C" INTERLEAVED void k_e56ebbcab797b75f(void* const* args, long task, long tasks) {
  const float* RESTRICT in0 = (const float*)args[0];
  const float* RESTRICT in1 = (const float*)args[1];
  float* RESTRICT out0 = (float*)args[2];
  GRID(i0, 64) {
    Vec<float, 32> av0 = splat<32>(bits<float>(0x80000000u));
    LANES(i1, 32, 40, VECTORS(32, 40)) {
      fetch_once<128>(in0 + 40 * i0 + i1 + 256);
      const auto v1 = load<32, 4>(in0 + 40 * i0 + i1);
      const auto v2 = exp_(v1);
      av0 = add_(av0, v2);
    }
    TAIL(i1, 32, 40, VECTORS(32, 40)) {
      const auto v1 = load_masked<32, 4>(in0 + 40 * i0 + i1, 8);
      const auto v2 = exp_(v1);
      av0 = first_lanes(8, add_(av0, v2), av0);
    }
    const auto v0 = join_lanes([](const auto& a, const auto& b) { return add_(a, b); }, av0);
    Vec<float, 32> av3 = splat<32>(bits<float>(0x80000000u));
    LANES(i2, 32, 100, VECTORS(32, 100)) {
      fetch_once<128>(in1 + 100 * i0 + i2 + 256);
      const auto v4 = load<32, 4>(in1 + 100 * i0 + i2);
      const auto v5 = exp_(v4);
      av3 = add_(av3, v5);
    }
    TAIL(i2, 32, 100, VECTORS(32, 100)) {
      const auto v4 = load_masked<32, 4>(in1 + 100 * i0 + i2, 4);
      const auto v5 = exp_(v4);
      av3 = first_lanes(4, add_(av3, v5), av3);
    }
    const auto v3 = join_lanes([](const auto& a, const auto& b) { return add_(a, b); }, av3);
    const auto v6 = add_(v0, v3);
    store<1, 1>(out0 + i0, v6);
  }
}
