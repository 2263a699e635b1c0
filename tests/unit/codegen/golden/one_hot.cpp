extern "C" void k_b69f1955cf62c07f(void* const* args, long task, long tasks) {
  const int64_t* RESTRICT in0 = (const int64_t*)args[0];
  const float* RESTRICT in1 = (const float*)args[1];
  float* RESTRICT out0 = (float*)args[2];
  GRID(i0, 64) {
    const auto v0 = load<1, 1>(in0 + i0);
    const auto v1 = maximum_(v0, splat<1>(bits<int64_t>(0xffffffffffffffffull)));
    const auto v2 = minimum_(v1, splat<1>(bits<int64_t>(0x60ull)));
    const auto v3 = cast<int32_t>(v2);
    LANES(i1, 32, 96, VECTORS(32, 96)) {
      fetch_once<128>(in1 + 96 * i0 + i1 + 256);
      const auto v4 = iota_<int32_t, 32>(i1);
      const auto v5 = eq_(v4, splat<32>(v3));
      const auto v6 = load<32, 4>(in1 + 96 * i0 + i1);
      const auto v7 = where_(v5, v6, splat<32>(bits<float>(0x0u)));
      store<32, 16>(out0 + 96 * i0 + i1, v7);
    }
  }
}
