extern "C" INTERLEAVED void k_44ce51fb37037025(void* const* args, long task, long tasks) {
  const float* RESTRICT in0 = (const float*)args[0];
  const int64_t* RESTRICT in1 = (const int64_t*)args[1];
  float* RESTRICT out0 = (float*)args[2];
  GRID(i0, 12) {
    const auto v0 = load<1, 1>(in1 + 0);
    LANES(i1, 32, 512, VECTORS(32, 512)) {
      fetch_once<128>(in0 + 512 * i0 + i1 + 256);
      const auto v1 = uniform_run<32>(get(v0, 0), get(splat<1>(bits<int64_t>(0x0ull)), 0), 0, 512 * i0 + i1);
      const auto v2 = ge_(v1, splat<32>(bits<float>(0x3dcccccdu)));
      const auto v3 = load<32, 4>(in0 + 512 * i0 + i1);
      const auto v4 = mul_(v3, splat<32>(bits<float>(0x3f8e38e4u)));
      const auto v5 = where_(v2, v4, splat<32>(bits<float>(0x0u)));
      store<32, 16>(out0 + 512 * i0 + i1, v5);
    }
  }
}
