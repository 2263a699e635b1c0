extern "C" __global__ void __launch_bounds__(128) k_pipeline(const float* RESTRICT in0, float* RESTRICT out0) {
  SHARED_MEMORY(shared);
  float* const stages = (float*)shared;
  const int me = threadIdx.x, other = 127 - me;
  auto fetch = [&](int tile) {
    if (tile < 10) copy_async<16>(shared_address(stages + (tile % 3 * 128 + me) * 4), in0 + (tile * 128 + me) * 4, tile * 128 + me < 9 * 128 + 117);
    copy_async_commit();
  };
  fetch(0);
  fetch(1);
  auto sum = splat<4>(0.f);
  for (int tile = 0; tile < 10; tile++) {
    copy_async_wait<1>();
    block_barrier();
    fetch(tile + 2);
    sum = add_(sum, shared_load<float, 4>(stages + (tile % 3 * 128 + other) * 4));
  }
  store<4, 4>(out0 + me * 4, sum);
}
