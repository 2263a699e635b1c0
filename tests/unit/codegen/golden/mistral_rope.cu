extern "C" __global__ void __launch_bounds__(256) k_781143e4f00f3e78(const bf16* RESTRICT in0, const bf16* RESTRICT in1, const bf16* RESTRICT in2, const bf16* RESTRICT in3, const int64_t* RESTRICT in4, bf16* RESTRICT out0, bf16* RESTRICT out1, bf16* RESTRICT out2, bf16* RESTRICT out3, bf16* RESTRICT out4) {
  constexpr int TX = 16, TY = 16;
  GRID(i0, 4096) {
    const auto v0 = load<1, 1>(in4 + i0);
    const auto v1 = cast<float>(v0);
    Vec<float, 4> kv2[VECTORS(4, 64)];
    Vec<float, 4> kv3[VECTORS(4, 64)];
    LANES_WHOLE(i1, 4, 64, VECTORS(4, 64)) {
      const auto v4 = load<4, 4>(in3 + i1);
      const auto v5 = cast<float>(v4);
      const auto v6 = mul_(v5, splat<4>(v1));
      const auto v7 = cos_(v6);
      const auto v8 = cast<bf16>(v7);
      const auto v9 = sin_(v6);
      const auto v10 = cast<bf16>(v9);
      const auto v2 = widen(v8); kv2[i1_v] = v2;
      const auto v3 = widen(v10); kv3[i1_v] = v3;
      FIRST_ROW store<4, 4>(out0 + 128 * i0 + i1, v8);
      FIRST_ROW store<4, 4>(out0 + 128 * i0 + i1 + 64, v8);
      FIRST_ROW store<4, 4>(out1 + 128 * i0 + i1, v10);
      FIRST_ROW store<4, 4>(out1 + 128 * i0 + i1 + 64, v10);
    }
    ROWS(i2, 8) {
      LANES_WHOLE(i1, 4, 64, VECTORS(4, 64)) {
        const auto v11 = load<4, 4>(in1 + 1024 * i0 + 128 * i2 + i1);
        const auto v12 = cast<float>(v11);
        const auto v13 = mul_(v12, kv2[i1_v]);
        const auto v14 = load<4, 4>(in1 + 1024 * i0 + 128 * i2 + i1 + 64);
        const auto v15 = cast<float>(v14);
        const auto v16 = neg_(v15);
        const auto v17 = mul_(v16, kv3[i1_v]);
        const auto v18 = add_(v13, v17);
        const auto v19 = cast<bf16>(v18);
        const auto v20 = mul_(v15, kv2[i1_v]);
        const auto v21 = mul_(v12, kv3[i1_v]);
        const auto v22 = add_(v20, v21);
        const auto v23 = cast<bf16>(v22);
        LOOP(i3, 4) store<4, 4>(out3 + 2097152 * i2 + 524288 * i3 + 128 * i0 + i1, v19);
        LOOP(i3, 4) store<4, 4>(out3 + 2097152 * i2 + 524288 * i3 + 128 * i0 + i1 + 64, v23);
      }
      LOOP(i4, 2) {
        LANES_WHOLE(i5, 4, 64, VECTORS(4, 64)) {
          const auto v24 = load<4, 4>(in2 + 1024 * i0 + 128 * i2 + 64 * i4 + i5);
          LOOP(i3, 4) store<4, 4>(out4 + 2097152 * i2 + 524288 * i3 + 128 * i0 + 64 * i4 + i5, v24);
        }
      }
    }
    ROWS_WHOLE(i6, 32) {
      LANES_WHOLE(i1, 4, 64, VECTORS(4, 64)) {
        const auto v25 = load<4, 4>(in0 + 4096 * i0 + 128 * i6 + i1);
        const auto v26 = cast<float>(v25);
        const auto v27 = mul_(v26, kv2[i1_v]);
        const auto v28 = load<4, 4>(in0 + 4096 * i0 + 128 * i6 + i1 + 64);
        const auto v29 = cast<float>(v28);
        const auto v30 = neg_(v29);
        const auto v31 = mul_(v30, kv3[i1_v]);
        const auto v32 = add_(v27, v31);
        const auto v33 = cast<bf16>(v32);
        const auto v34 = mul_(v29, kv2[i1_v]);
        const auto v35 = mul_(v26, kv3[i1_v]);
        const auto v36 = add_(v34, v35);
        const auto v37 = cast<bf16>(v36);
        store<4, 4>(out2 + 524288 * i6 + 128 * i0 + i1, v33);
        store<4, 4>(out2 + 524288 * i6 + 128 * i0 + i1 + 64, v37);
      }
    }
  }
}
// grid (4096, 1, 1), block (16, 16, 1)
