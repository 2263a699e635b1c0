// reduction{vec=4,x=32,y=8,per=1,keep=registers,dear=0}
extern "C" __global__ void __launch_bounds__(256) k_36e6826297c96782(const float* RESTRICT in0, float* RESTRICT out0) {
  constexpr int TX = 32, TY = 8;
  SHARED_MEMORY(shared);
  constexpr int JOINED_X = 0, JOINED = 4096;
  Vec<float, 4> kv0[VECTORS(4, 96)];
  UNROLL(i0_v, VECTORS(4, 96)) kv0[i0_v] = splat<4>(bits<float>(0x80000000u));
  ROWS_WHOLE(i1, 256) {
    LANES(i0, 4, 96, VECTORS(4, 96)) {
      const auto v1 = load<4, 4>(in0 + 96 * i1 + i0);
      kv0[i0_v] = add_(kv0[i0_v], v1);
    }
  }
  UNROLL(i0_v, VECTORS(4, 96)) kv0[i0_v] = join_y<TX, TY>(shared + JOINED_X, [](const auto& a, const auto& b) { return add_(a, b); }, kv0[i0_v]);
  ONCE FIRST_ROW {
    LANES(i0, 4, 96, VECTORS(4, 96)) {
      store<4, 4>(out0 + i0, kv0[i0_v]);
    }
  }
}
// grid (1, 1, 1), block (32, 8, 1), 4096 bytes of shared memory
