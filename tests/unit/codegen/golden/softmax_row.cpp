extern "C" INTERLEAVED void k_822e983e2951d102(void* const* args, long task, long tasks) {
  const float* RESTRICT in0 = (const float*)args[0];
  float* RESTRICT out0 = (float*)args[1];
  GRID(i0, 64) {
    Vec<float, 32> av0 = splat<32>(bits<float>(0xff800000u));
    LANES(i1, 32, 100, VECTORS(32, 100)) {
      const auto v1 = load<32, 4>(in0 + 100 * i0 + i1);
      av0 = maximum_(av0, v1);
    }
    TAIL(i1, 32, 100, VECTORS(32, 100)) {
      const auto v1 = load_masked<32, 4>(in0 + 100 * i0 + i1, 4);
      av0 = first_lanes(4, maximum_(av0, v1), av0);
    }
    const auto v0 = join_lanes([](const auto& a, const auto& b) { return maximum_(a, b); }, av0);
    Vec<float, 32> kv2[VECTORS(32, 100)];
    Vec<float, 32> av3 = splat<32>(bits<float>(0x80000000u));
    LANES(i1, 32, 100, VECTORS(32, 100)) {
      fetch<128>(in0 + 100 * i0 + i1 + 100);
      const auto v1 = load<32, 4>(in0 + 100 * i0 + i1);
      const auto v4 = sub_(v1, splat<32>(v0));
      const auto v2 = exp_(v4); kv2[i1_v] = v2;
      av3 = add_(av3, v2);
    }
    TAIL(i1, 32, 100, VECTORS(32, 100)) {
      const auto v1 = load_masked<32, 4>(in0 + 100 * i0 + i1, 4);
      const auto v4 = sub_(v1, splat<32>(v0));
      const auto v2 = exp_(v4); kv2[i1_v] = v2;
      av3 = first_lanes(4, add_(av3, v2), av3);
    }
    const auto v3 = join_lanes([](const auto& a, const auto& b) { return add_(a, b); }, av3);
    LANES(i1, 32, 100, VECTORS(32, 100)) {
      const auto v5 = divided_(kv2[i1_v], v3);
      store<32, 4>(out0 + 100 * i0 + i1, v5);
    }
    TAIL(i1, 32, 100, VECTORS(32, 100)) {
      const auto v5 = divided_(kv2[i1_v], v3);
      store_masked<32, 4>(out0 + 100 * i0 + i1, v5, 4);
    }
  }
}
