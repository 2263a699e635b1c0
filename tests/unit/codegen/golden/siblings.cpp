extern "C" void k_4eb01d123dc1614c(void* const* args, long task, long tasks) {
  const float* RESTRICT in0 = (const float*)args[0];
  const f16* RESTRICT in1 = (const f16*)args[1];
  float* RESTRICT out0 = (float*)args[2];
  f16* RESTRICT out1 = (f16*)args[3];
  ONCE {
    LANES(i0, 32, 231, VECTORS(32, 231)) {
      const auto v0 = load<32, 8>(in1 + i0);
      const auto v1 = cast<float>(v0);
      const auto v2 = neg_(v1);
      const auto v3 = cast<f16>(v2);
      store_stream<32, 32>(out1 + i0, v3);
    }
    TAIL(i0, 32, 231, VECTORS(32, 231)) {
      const auto v0 = load_masked<32, 8>(in1 + i0, 7);
      const auto v1 = cast<float>(v0);
      const auto v2 = neg_(v1);
      const auto v3 = cast<f16>(v2);
      store_masked<32, 32>(out1 + i0, v3, 7);
    }
  }
  GRID(i1, 2) {
    const idx_t i2_n = least_index(512, 1000 - 512 * i1);
    LANES(i2, 32, i2_n, VECTORS(32, 512)) {
      const auto v4 = load<32, 4>(in0 + 512 * i1 + i2);
      const auto v5 = exp_(v4);
      store_stream<32, 16>(out0 + 512 * i1 + i2, v5);
    }
    TAIL(i2, 32, i2_n, VECTORS(32, 512)) {
      const auto v4 = load_masked<32, 4>(in0 + 512 * i1 + i2, 8);
      const auto v5 = exp_(v4);
      store_masked<32, 16>(out0 + 512 * i1 + i2, v5, 8);
    }
  }
  stream_fence();
}
