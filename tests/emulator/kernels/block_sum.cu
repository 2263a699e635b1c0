extern "C" __global__ void __launch_bounds__(256) k_block_sum(const float* RESTRICT in0, float* RESTRICT out0) {
  SHARED_MEMORY(shared);
  float* const parts = (float*)shared;
  float x = get(load<1, 1>(in0 + blockIdx.x * 256 + threadIdx.x), 0);
  for (int by = 16; by; by /= 2) x += shuffle_xor(x, by);
  if (threadIdx.x % 32 == 0) shared_store(parts + threadIdx.x / 32, splat<1>(x));
  block_barrier();
  float sum = 0;
  for (int i = 0; i < 8; i++) sum += get(shared_load<float, 1>(parts + i), 0);
  if (threadIdx.x == 0) store<1, 1>(out0 + blockIdx.x, splat<1>(sum));
}
