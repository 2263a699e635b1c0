extern "C" void k_d78cae0d93ff52e4(void* const* args, long task, long tasks) {
  const bf16* RESTRICT in0 = (const bf16*)args[0];
  bf16* RESTRICT out0 = (bf16*)args[1];
  GRID(i0, 64) {
    LANES(i1, 32, 128, VECTORS(32, 128)) {
      const auto v0 = load_strided<32>(in0 + 64 * i1 + i0, 64, 32);
      const auto v1 = cast<float>(v0);
      const auto v2 = neg_(v1);
      const auto v3 = cast_exact<bf16>(v2);
      store_stream<32, 32>(out0 + 128 * i0 + i1, v3);
    }
  }
  stream_fence();
}
