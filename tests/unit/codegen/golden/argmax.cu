// reduction{vec=4,x=8,y=32,per=1,keep=registers,dear=0}
extern "C" __global__ void __launch_bounds__(256) k_dfb54abcc434d829(const float* RESTRICT in0, int64_t* RESTRICT out0) {
  constexpr int TX = 8, TY = 32;
  GRID_ROWS(i0, 64) {
    Best<float, 4, int32_t> av0 = none_yet<int32_t, 4>(bits<float>(0xff800000u));
    LANES_LOOP(i1, 4, 100, VECTORS(4, 100)) {
      const auto v1 = load<4, 4>(in0 + 100 * i0 + i1);
      const auto v2 = iota_<int32_t, 4>(i1);
      av0 = better_later<true>(av0, v1, v2);
    }
    const auto v0 = position(join_x<TX, TY>(nullptr, [](const auto& a, const auto& b) { return better<true>(a, b); }, join_best<true>(av0)));
    const auto v3 = cast<int64_t>(v0);
    FIRST_LANE store<1, 1>(out0 + i0, v3);
  }
}
// grid (2, 1, 1), block (8, 32, 1), 0 bytes of shared memory
