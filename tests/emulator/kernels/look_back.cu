extern "C" __global__ void __launch_bounds__(64)
k_look_back(const int* RESTRICT in0, int* RESTRICT out0, int* tmp0, int* flags) {
  SHARED_MEMORY(shared);
  int* const part = (int*)shared;
  if (threadIdx.x == 0) shared_store(part + 64, splat<1>(atomic_add(flags, 1)));
  block_barrier();
  const int tile = get(shared_load<int, 1>(part + 64), 0);
  const int x = read(in0 + tile * 64 + threadIdx.x);
  shared_store(part + threadIdx.x, splat<1>(x));
  block_barrier();
  int sum = 0;
  for (int i = 0; i <= (int)threadIdx.x; i++) sum += get(shared_load<int, 1>(part + i), 0);
  if (threadIdx.x == 63) {
    int before = 0;
    if (tile > 0) {
      wait_until(flags + tile, [](int f) { return f == 1; });
      before = read(tmp0 + tile - 1);
    }
    write(tmp0 + tile, before + sum);
    store_release(flags + tile + 1, 1);
    shared_store(part + 65, splat<1>(before));
  }
  block_barrier();
  write(out0 + tile * 64 + threadIdx.x, get(shared_load<int, 1>(part + 65), 0) + sum);
}
