extern "C" void k_d4036c79aef6690e(void* const* args, long task, long tasks) {
  const float* RESTRICT in0 = (const float*)args[0];
  const float* RESTRICT in1 = (const float*)args[1];
  float* RESTRICT out0 = (float*)args[2];
  GRID(g0, 8) {
    const idx_t i0 = g0 / 2;
    const idx_t i1 = g0 % 2;
    Vec<float, 32> av0 = splat<32>(bits<float>(0x80000000u));
    ROWS(i2, 4) {
      LANES(i3, 32, 42, VECTORS(32, 42)) {
        const auto v1 = load<32, 2>(in0 + 336 * i0 + 168 * i1 + 42 * i2 + i3);
        av0 = add_(av0, v1);
      }
      TAIL(i3, 32, 42, VECTORS(32, 42)) {
        const auto v1 = load_masked<32, 2>(in0 + 336 * i0 + 168 * i1 + 42 * i2 + i3, 10);
        av0 = first_lanes(10, add_(av0, v1), av0);
      }
    }
    const auto v0 = join_lanes([](const auto& a, const auto& b) { return add_(a, b); }, av0);
    Vec<float, 32> av2 = splat<32>(bits<float>(0x80000000u));
    const auto v3 = div_(v0, splat<1>(bits<float>(0x43280000u)));
    ROWS(i2, 4) {
      LANES(i3, 32, 42, VECTORS(32, 42)) {
        const auto v1 = load<32, 2>(in0 + 336 * i0 + 168 * i1 + 42 * i2 + i3);
        const auto v4 = sub_(v1, splat<32>(v3));
        const auto v5 = mul_(v4, v4);
        av2 = add_(av2, v5);
      }
      TAIL(i3, 32, 42, VECTORS(32, 42)) {
        const auto v1 = load_masked<32, 2>(in0 + 336 * i0 + 168 * i1 + 42 * i2 + i3, 10);
        const auto v4 = sub_(v1, splat<32>(v3));
        const auto v5 = mul_(v4, v4);
        av2 = first_lanes(10, add_(av2, v5), av2);
      }
    }
    const auto v2 = join_lanes([](const auto& a, const auto& b) { return add_(a, b); }, av2);
    const auto v6 = div_(v2, splat<1>(bits<float>(0x43280000u)));
    const auto v7 = add_(v6, splat<1>(bits<float>(0x3727c5acu)));
    const auto v8 = rsqrt_(v7);
    ROWS(i2, 4) {
      const auto v9 = load<1, 1>(in1 + 4 * i1 + i2);
      LANES(i3, 32, 42, VECTORS(32, 42)) {
        fetch<128>(in0 + 336 * i0 + 168 * i1 + 42 * i2 + i3 + 168);
        const auto v1 = load<32, 2>(in0 + 336 * i0 + 168 * i1 + 42 * i2 + i3);
        const auto v4 = sub_(v1, splat<32>(v3));
        const auto v10 = mul_(v4, splat<32>(v8));
        const auto v11 = mul_(v10, splat<32>(v9));
        store<32, 2>(out0 + 336 * i0 + 168 * i1 + 42 * i2 + i3, v11);
      }
      TAIL(i3, 32, 42, VECTORS(32, 42)) {
        const auto v1 = load_masked<32, 2>(in0 + 336 * i0 + 168 * i1 + 42 * i2 + i3, 10);
        const auto v4 = sub_(v1, splat<32>(v3));
        const auto v10 = mul_(v4, splat<32>(v8));
        const auto v11 = mul_(v10, splat<32>(v9));
        store_masked<32, 2>(out0 + 336 * i0 + 168 * i1 + 42 * i2 + i3, v11, 10);
      }
    }
  }
}
