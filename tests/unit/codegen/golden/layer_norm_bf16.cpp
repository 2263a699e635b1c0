extern "C" void k_ac44a1eed42377bb(void* const* args, long task, long tasks) {
  const bf16* RESTRICT in0 = (const bf16*)args[0];
  const bf16* RESTRICT in1 = (const bf16*)args[1];
  bf16* RESTRICT out0 = (bf16*)args[2];
  GRID(i0, 64) {
    Vec<float, 32> av0 = splat<32>(bits<float>(0x80000000u));
    LANES(i1, 32, 256, VECTORS(32, 256)) {
      const auto v1 = load_pairs<32, 8>(in0 + 256 * i0 + i1);
      const auto v2 = cast<float>(v1);
      av0 = add_(av0, v2);
    }
    const auto v0 = join_lanes([](const auto& a, const auto& b) { return add_(a, b); }, av0);
    const auto v3 = div_(v0, splat<1>(bits<float>(0x43800000u)));
    Vec<float, 32> av4 = splat<32>(bits<float>(0x80000000u));
    LANES(i1, 32, 256, VECTORS(32, 256)) {
      const auto v1 = load_pairs<32, 8>(in0 + 256 * i0 + i1);
      const auto v2 = cast<float>(v1);
      const auto v5 = sub_(v2, splat<32>(v3));
      const auto v6 = mul_(v5, v5);
      av4 = add_(av4, v6);
    }
    const auto v4 = join_lanes([](const auto& a, const auto& b) { return add_(a, b); }, av4);
    const auto v7 = div_(v4, splat<1>(bits<float>(0x43800000u)));
    const auto v8 = add_(v7, splat<1>(bits<float>(0x3727c5acu)));
    const auto v9 = rsqrt_(v8);
    LANES(i1, 32, 256, VECTORS(32, 256)) {
      fetch<64>(in0 + 256 * i0 + i1 + 256);
      const auto v1 = load_pairs<32, 8>(in0 + 256 * i0 + i1);
      const auto v2 = cast<float>(v1);
      const auto v5 = sub_(v2, splat<32>(v3));
      const auto v10 = mul_(v5, splat<32>(v9));
      const auto v11 = load_pairs<32, 8>(in1 + i1);
      const auto v12 = cast<float>(v11);
      const auto v13 = mul_(v10, v12);
      const auto v14 = round_pairs(v13);
      store<32, 32>(out0 + 256 * i0 + i1, v14);
    }
  }
}
