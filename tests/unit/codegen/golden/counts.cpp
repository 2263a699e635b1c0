extern "C" void k_8c266d986da5e295(void* const* args, long task, long tasks) {
  const int64_t* RESTRICT in0 = (const int64_t*)args[0];
  int64_t* RESTRICT out0 = (int64_t*)args[1];
  {
    const auto lists0_place = [&](idx_t i0) -> int64_t {
      const auto v0 = load<1, 1>(in0 + i0);
      return get(v0, 0);
    };
    const SliceLists<9000, 100> lists0((idx_t)(100 * task / tasks), (idx_t)(100 * (task + 1) / tasks), lists0_place);
    GRID(i0, 100) {
      Vec<int64_t, 1> av0 = splat<1>(bits<int64_t>(0x0ull));
      WALK(i1, lists0, i0) {
        const auto v1 = splat<1>((int64_t)lists0.order[i1]);
        av0 = add_(av0, splat<1>(bits<int64_t>(0x1ull)));
      }
      const auto v0 = av0;
      store<1, 1>(out0 + i0, v0);
    }
  }
  stream_fence();
}
