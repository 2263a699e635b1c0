extern "C" void k_4f0177c064ad05ac(void* const* args, long task, long tasks) {
  const bf16* RESTRICT in0 = (const bf16*)args[0];
  const int32_t* RESTRICT in1 = (const int32_t*)args[1];
  const bf16* RESTRICT in2 = (const bf16*)args[2];
  bf16* RESTRICT out0 = (bf16*)args[3];
  GRID(i0, 64) {
    const auto v0 = load<1, 1>(in1 + i0);
    const auto v1 = minimum_(v0, splat<1>(bits<int32_t>(0x3e7u)));
    const auto v2 = maximum_(v1, splat<1>(bits<int32_t>(0x0u)));
    LANES(i1, 32, 768, VECTORS(32, 768)) {
      const auto v3 = load_pairs<32, 8>(in0 + 768 * (idx_t)get(v2, 0) + i1);
      const auto v4 = cast<float>(v3);
      const auto v5 = load_pairs<32, 8>(in2 + 768 * i0 + i1);
      const auto v6 = cast<float>(v5);
      const auto v7 = add_(v4, v6);
      const auto v8 = round_pairs(v7);
      store_stream<32, 32>(out0 + 768 * i0 + i1, v8);
    }
  }
  stream_fence();
}
