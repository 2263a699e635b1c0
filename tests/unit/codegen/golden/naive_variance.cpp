extern "C" void k_13ed980197bceb22(void* const* args, long task, long tasks) {
  const bf16* RESTRICT in0 = (const bf16*)args[0];
  float* RESTRICT out0 = (float*)args[1];
  GRID_ROWS(e0, 64) {
    const idx_t i0 = e0;
    Vec<float, 1> v0;
    bool first_v0 = true;
    LOOP(i1, 100) {
      const auto v1 = load<1, 1>(in0 + 100 * i0 + i1);
      const auto v2 = cast<float>(v1);
      v0 = first_v0 ? v2 : add_(v0, v2);
      first_v0 = false;
    }
    const auto v3 = div_(v0, splat<1>(bits<float>(0x42c80000u)));
    Vec<float, 1> v4;
    bool first_v4 = true;
    LOOP(i1, 100) {
      const auto v1 = load<1, 1>(in0 + 100 * i0 + i1);
      const auto v2 = cast<float>(v1);
      const auto v5 = sub_(v2, v3);
      const auto v6 = mul_(v5, v5);
      v4 = first_v4 ? v6 : add_(v4, v6);
      first_v4 = false;
    }
    const auto v7 = div_(v4, splat<1>(bits<float>(0x42c60000u)));
    store<1, 1>(out0 + i0, v7);
  }
}
