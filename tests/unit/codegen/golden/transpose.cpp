extern "C" void k_37e09dda231a5652(void* const* args, long task, long tasks) {
  const float* RESTRICT in0 = (const float*)args[0];
  const bf16* RESTRICT in1 = (const bf16*)args[1];
  float* RESTRICT out0 = (float*)args[2];
  float* RESTRICT out1 = (float*)args[3];
  GRID(g0, 48) {
    const idx_t i0 = g0 / 8;
    const idx_t i1 = g0 % 8;
    Tile<bf16, 64, 128> t0;
    read_across(t0, in1 + 65536 * i0 + 64 * i1, 512, 64, least_index(128, 700 - 128 * i0));
    Tile<float, 64, 128> t1;
    ROWS(i2, 64) {
      fetch_across<64, 128>(in1 + 65536 * i0 + 64 * i1 + 64, 512, i2);
      const idx_t i3_n = least_index(128, 700 - 128 * i0);
      LANES(i3, 32, i3_n, VECTORS(32, 128)) {
        const auto v0 = load<32, 4>(in0 + 44800 * i1 + 700 * i2 + 128 * i0 + i3);
        const auto v1 = load<32, 1>(t0.at[i2] + i3);
        const auto v2 = cast<float>(v1);
        const auto v3 = add_(v0, v2);
        store_stream<32, 4>(out0 + 44800 * i1 + 700 * i2 + 128 * i0 + i3, v3);
        store<32, 1>(t1.at[i2] + i3, v3);
      }
      TAIL(i3, 32, i3_n, VECTORS(32, 128)) {
        const auto v0 = load_masked<32, 4>(in0 + 44800 * i1 + 700 * i2 + 128 * i0 + i3, 28);
        const auto v1 = load_masked<32, 1>(t0.at[i2] + i3, 28);
        const auto v2 = cast<float>(v1);
        const auto v3 = add_(v0, v2);
        store_masked<32, 4>(out0 + 44800 * i1 + 700 * i2 + 128 * i0 + i3, v3, 28);
        store_masked<32, 1>(t1.at[i2] + i3, v3, 28);
      }
    }
    write_across<true>(out1 + 65536 * i0 + 64 * i1, 512, t1, 64, least_index(128, 700 - 128 * i0));
  }
  stream_fence();
}
