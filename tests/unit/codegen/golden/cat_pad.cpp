extern "C" void k_e2baea7ac1b12eb5(void* const* args, long task, long tasks) {
  const float* RESTRICT in0 = (const float*)args[0];
  const float* RESTRICT in1 = (const float*)args[1];
  float* RESTRICT out0 = (float*)args[2];
  const auto v0 = abs_(splat<1>(bits<float>(0x0u)));
  GRID(i0, 64) {
    store<1, 1>(out0 + 85 * i0, v0);
    LANES(i1, 2, 2, VECTORS(2, 2)) {
      store_stream<2, 1>(out0 + 85 * i0 + i1 + 83, splat<2>(v0));
    }
    LANES(i2, 32, 32, VECTORS(32, 32)) {
      const auto v1 = load<32, 4>(in0 + 32 * i0 + i2);
      const auto v2 = abs_(v1);
      store_stream<32, 1>(out0 + 85 * i0 + i2 + 1, v2);
    }
    LANES(i3, 32, 50, VECTORS(32, 50)) {
      const auto v3 = load<32, 2>(in1 + 50 * i0 + i3);
      const auto v4 = abs_(v3);
      store_stream<32, 1>(out0 + 85 * i0 + i3 + 33, v4);
    }
    TAIL(i3, 32, 50, VECTORS(32, 50)) {
      const auto v3 = load_masked<32, 2>(in1 + 50 * i0 + i3, 18);
      const auto v4 = abs_(v3);
      store_masked<32, 1>(out0 + 85 * i0 + i3 + 33, v4, 18);
    }
  }
  stream_fence();
}
