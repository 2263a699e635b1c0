extern "C" __global__ void __launch_bounds__(128) k_histogram(const int* RESTRICT in0, int* RESTRICT out0) {
  SHARED_MEMORY(shared);
  int* const counts = (int*)shared;
  if (threadIdx.x < 16) shared_store(counts + threadIdx.x, splat<1>(0));
  if (threadIdx.x == 16) shared_store(counts + 16, splat<1>(-1));
  block_barrier();
  const int x = get(load<1, 1>(in0 + blockIdx.x * 128 + threadIdx.x), 0);
  atomic_add(counts + x, 1);
  atomic_max(counts + 16, x);
  block_barrier();
  if (threadIdx.x < 17) store<1, 1>(out0 + blockIdx.x * 17 + threadIdx.x, shared_load<int, 1>(counts + threadIdx.x));
}
