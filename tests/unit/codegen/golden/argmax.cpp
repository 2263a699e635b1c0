extern "C" void k_acccecc1a7807d55(void* const* args, long task, long tasks) {
  const float* RESTRICT in0 = (const float*)args[0];
  int64_t* RESTRICT out0 = (int64_t*)args[1];
  GRID(i0, 64) {
    Best<float, 32, int32_t> av0 = none_yet<int32_t, 32>(bits<float>(0xff800000u));
    LANES(i1, 32, 100, VECTORS(32, 100)) {
      fetch_once<128>(in0 + 100 * i0 + i1 + 256);
      const auto v1 = load<32, 4>(in0 + 100 * i0 + i1);
      const auto v2 = iota_<int32_t, 32>(i1);
      av0 = better_later<true>(av0, v1, v2);
    }
    TAIL(i1, 32, 100, VECTORS(32, 100)) {
      const auto v1 = load_masked<32, 4>(in0 + 100 * i0 + i1, 4);
      const auto v2 = iota_<int32_t, 32>(i1);
      av0 = first_lanes(4, better_later<true>(av0, v1, v2), av0);
    }
    const auto v0 = position(join_best<true>(av0));
    const auto v3 = cast<int64_t>(v0);
    store<1, 1>(out0 + i0, v3);
  }
}
