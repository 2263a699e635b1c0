extern "C" __global__ void __launch_bounds__(128) k_specialised(const float* RESTRICT in0, float* RESTRICT out0) {
  SHARED_MEMORY(shared);
  float* const stage = (float*)shared;
  const int i = threadIdx.x % 64;
  if (threadIdx.x < 64)
    for (int t = 0; t < 6; t++) {
      shared_store(stage + i, load<1, 1>(in0 + t * 64 + i));
      named_barrier(1, 128);
      named_barrier(2, 128);
    }
  else
    for (int t = 0; t < 6; t++) {
      named_barrier(1, 128);
      store<1, 1>(out0 + t * 64 + i, shared_load<float, 1>(stage + 63 - i));
      named_barrier(2, 128);
    }
}
