// reduction{vec=2,x=4,y=64,per=1,keep=registers,dear=0}
extern "C" __global__ void __launch_bounds__(256) k_287de77a13c7abe4(const float* RESTRICT in0, float* RESTRICT out0) {
  constexpr int TX = 4, TY = 64;
  SHARED_MEMORY(shared);
  constexpr int JOINED_X = 0, JOINED = 4096;
  GRID(i0, 12) {
    Vec<float, 2> kv0[VECTORS(2, 8)];
    UNROLL(i1_v, VECTORS(2, 8)) kv0[i1_v] = splat<2>(bits<float>(0x80000000u));
    ROWS_WHOLE(i2, 256) {
      LANES_WHOLE(i1, 2, 8, VECTORS(2, 8)) {
        const auto v1 = load<2, 2>(in0 + 96 * i2 + 8 * i0 + i1);
        kv0[i1_v] = add_(kv0[i1_v], v1);
      }
    }
    UNROLL(i1_v, VECTORS(2, 8)) kv0[i1_v] = join_y<TX, TY>(shared + JOINED_X, [](const auto& a, const auto& b) { return add_(a, b); }, kv0[i1_v]);
    LANES_WHOLE(i1, 2, 8, VECTORS(2, 8)) {
      FIRST_ROW store<2, 2>(out0 + 8 * i0 + i1, kv0[i1_v]);
    }
  }
}
// grid (12, 1, 1), block (4, 64, 1), 4096 bytes of shared memory
