extern "C" void k_0d4317032e11aaa6(void* const* args, long task, long tasks) {
  const bf16* RESTRICT in0 = (const bf16*)args[0];
  bf16* RESTRICT out0 = (bf16*)args[1];
  GRID(i0, 4) {
    Vec<float, 32> c0[VECTORS(32, 256)];
    ROWS(i1, 64) {
      const idx_t i2_n = least_index(256, 1000 - 256 * i0);
      LANES(i2, 32, i2_n, VECTORS(32, 256)) {
        const auto v0 = load<32, 8>(in0 + 1000 * i1 + 256 * i0 + i2);
        const auto v1 = cast<float>(v0);
        const auto v2 = scan_step([](const auto& a, const auto& b) { return add_(a, b); }, c0[i2_v], v1, i1 == 0);
        const auto v3 = cast<bf16>(v2);
        store<32, 8>(out0 + 1000 * i1 + 256 * i0 + i2, v3);
      }
      TAIL(i2, 32, i2_n, VECTORS(32, 256)) {
        const auto v0 = load_masked<32, 8>(in0 + 1000 * i1 + 256 * i0 + i2, 8);
        const auto v1 = cast<float>(v0);
        const auto v2 = scan_step([](const auto& a, const auto& b) { return add_(a, b); }, c0[i2_v], v1, i1 == 0);
        const auto v3 = cast<bf16>(v2);
        store_masked<32, 8>(out0 + 1000 * i1 + 256 * i0 + i2, v3, 8);
      }
    }
  }
}
