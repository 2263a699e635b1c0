extern "C" void k_391c8b1b192094a7(void* const* args, long task, long tasks) {
  const int64_t* RESTRICT in0 = (const int64_t*)args[0];
  int64_t* RESTRICT out0 = (int64_t*)args[1];
  {
    const auto lists0_place = [&](idx_t i0) -> int64_t {
      const auto v0 = load<1, 1>(in0 + i0);
      return get(v0, 0);
    };
    const SliceLists<9000, 100> lists0((idx_t)(100 * task / tasks), (idx_t)(100 * (task + 1) / tasks), lists0_place);
    GRID(i0, 100) {
      Vec<int32_t, 1> av0 = splat<1>(bits<int32_t>(0x0u));
      WALK(i1, lists0, i0) {
        const auto v1 = splat<1>((int64_t)lists0.order[i1]);
        const auto v2 = ge_(v1, splat<1>(bits<int64_t>(0x0ull)));
        const auto v3 = where_(v2, splat<1>(bits<int32_t>(0x1u)), splat<1>(bits<int32_t>(0x0u)));
        av0 = add_(av0, v3);
      }
      const auto v0 = av0;
      const auto v4 = cast<int64_t>(v0);
      store<1, 1>(out0 + i0, v4);
    }
  }
  stream_fence();
}
