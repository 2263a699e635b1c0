extern "C" void k_1baa59aea7b7f7ae(void* const* args, long task, long tasks) {
  const float* RESTRICT in0 = (const float*)args[0];
  const float* RESTRICT in1 = (const float*)args[1];
  const float* RESTRICT in2 = (const float*)args[2];
  const float* RESTRICT in3 = (const float*)args[3];
  float* RESTRICT out0 = (float*)args[4];
  GRID(i0, 256) {
    const auto v0 = load<1, 1>(in0 + 2 * i0);
    const auto v1 = load<1, 1>(in0 + 2 * i0 + 1);
    LANES(i1, 32, 512, VECTORS(32, 512)) {
      const auto v2 = load<32, 4>(in1 + i1);
      const auto v3 = mul_(splat<32>(v0), v2);
      const auto v4 = load<32, 4>(in1 + i1 + 512);
      const auto v5 = fma_(splat<32>(v1), v4, v3);
      const auto v6 = load<32, 4>(in3 + i1);
      const auto v7 = add_(v5, v6);
      const auto v8 = load<32, 4>(in2 + 512 * i0 + i1);
      const auto v9 = add_(v7, v8);
      const auto v10 = relu_(v9);
      store_stream<32, 16>(out0 + 512 * i0 + i1, v10);
    }
  }
  stream_fence();
}
