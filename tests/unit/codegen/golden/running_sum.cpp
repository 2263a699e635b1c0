extern "C" void k_f1d2cae025915ae9(void* const* args, long task, long tasks) {
  const float* RESTRICT in0 = (const float*)args[0];
  float* RESTRICT out0 = (float*)args[1];
  GRID(i0, 64) {
    auto c0 = no_carry<32>(bits<int32_t>(0x0u));
    LANES(i1, 32, 1000, VECTORS(32, 1000)) {
      const auto v0 = load<32, 4>(in0 + 1000 * i0 + i1);
      const auto v1 = gt_(v0, splat<32>(bits<float>(0x0u)));
      const auto v2 = cast<int32_t>(v1);
      const auto v3 = scan_lanes([](const auto& a, const auto& b) { return add_(a, b); }, c0, v2);
      const auto v4 = cast<float>(v3);
      const auto v5 = mul_(v4, v0);
      store_stream<32, 8>(out0 + 1000 * i0 + i1, v5);
    }
    TAIL(i1, 32, 1000, VECTORS(32, 1000)) {
      const auto v0 = load_masked<32, 4>(in0 + 1000 * i0 + i1, 8);
      const auto v1 = gt_(v0, splat<32>(bits<float>(0x0u)));
      const auto v2 = cast<int32_t>(v1);
      const auto v3 = scan_lanes([](const auto& a, const auto& b) { return add_(a, b); }, c0, v2);
      const auto v4 = cast<float>(v3);
      const auto v5 = mul_(v4, v0);
      store_masked<32, 8>(out0 + 1000 * i0 + i1, v5, 8);
    }
  }
  stream_fence();
}
