extern "C" void k_1ffcb1e7b2a523bc(void* const* args, long task, long tasks) {
  const float* RESTRICT in0 = (const float*)args[0];
  const float* RESTRICT in1 = (const float*)args[1];
  float* RESTRICT out0 = (float*)args[2];
  GRID(i0, 64) {
    Vec<float, 32> av0 = splat<32>(bits<float>(0x80000000u));
    LANES(i1, 32, 300, VECTORS(32, 300)) {
      fetch_once<128>(in0 + 300 * i0 + i1 + 256);
      const auto v1 = load<32, 4>(in0 + 300 * i0 + i1);
      const auto v2 = load<32, 4>(in1 + i1);
      av0 = fma_(v1, v2, av0);
    }
    TAIL(i1, 32, 300, VECTORS(32, 300)) {
      const auto v1 = load_masked<32, 4>(in0 + 300 * i0 + i1, 12);
      const auto v2 = load_masked<32, 4>(in1 + i1, 12);
      av0 = first_lanes(12, fma_(v1, v2, av0), av0);
    }
    const auto v0 = join_lanes([](const auto& a, const auto& b) { return add_(a, b); }, av0);
    store<1, 1>(out0 + i0, v0);
  }
}
