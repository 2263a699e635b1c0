extern "C" void k_3a3803f4e03a5339(void* const* args, long task, long tasks) {
  const bf16* RESTRICT in0 = (const bf16*)args[0];
  const bf16* RESTRICT in1 = (const bf16*)args[1];
  const bf16* RESTRICT in2 = (const bf16*)args[2];
  const bf16* RESTRICT in3 = (const bf16*)args[3];
  const int64_t* RESTRICT in4 = (const int64_t*)args[4];
  bf16* RESTRICT out0 = (bf16*)args[5];
  bf16* RESTRICT out1 = (bf16*)args[6];
  bf16* RESTRICT out2 = (bf16*)args[7];
  bf16* RESTRICT out3 = (bf16*)args[8];
  bf16* RESTRICT out4 = (bf16*)args[9];
  GRID(i0, 4096) {
    const auto v0 = load<1, 1>(in4 + i0);
    const auto v1 = cast<float>(v0);
    Vec<float, 32> kv2[VECTORS(32, 64)];
    Vec<float, 32> kv3[VECTORS(32, 64)];
    LANES(i1, 32, 64, VECTORS(32, 64)) {
      const auto v4 = load_pairs<32, 8>(in3 + i1);
      const auto v5 = cast<float>(v4);
      const auto v6 = mul_(v5, splat<32>(v1));
      const auto v7 = cos_(v6);
      const auto v8 = round_pairs(v7);
      const auto v9 = sin_(v6);
      const auto v10 = round_pairs(v9);
      const auto v2 = widen(v8); kv2[i1_v] = v2;
      const auto v3 = widen(v10); kv3[i1_v] = v3;
      store_stream<32, 32>(out0 + 128 * i0 + i1, v8);
      store_stream<32, 32>(out0 + 128 * i0 + i1 + 64, v8);
      store_stream<32, 32>(out1 + 128 * i0 + i1, v10);
      store_stream<32, 32>(out1 + 128 * i0 + i1 + 64, v10);
    }
    ROWS(i2, 8) {
      LANES(i3, 32, 128, VECTORS(32, 128)) {
        const auto v11 = load_pairs<32, 8>(in2 + 1024 * i0 + 128 * i2 + i3);
        LOOP(i4, 4) store_stream<32, 32>(out4 + 2097152 * i2 + 524288 * i4 + 128 * i0 + i3, v11);
      }
      LANES(i1, 32, 64, VECTORS(32, 64)) {
        const auto v12 = load_pairs<32, 8>(in1 + 1024 * i0 + 128 * i2 + i1);
        const auto v13 = cast<float>(v12);
        const auto v14 = mul_(v13, kv2[i1_v]);
        const auto v15 = load_pairs<32, 8>(in1 + 1024 * i0 + 128 * i2 + i1 + 64);
        const auto v16 = cast<float>(v15);
        const auto v17 = neg_(v16);
        const auto v18 = mul_(v17, kv3[i1_v]);
        const auto v19 = add_(v14, v18);
        const auto v20 = round_pairs(v19);
        const auto v21 = mul_(v16, kv2[i1_v]);
        const auto v22 = mul_(v13, kv3[i1_v]);
        const auto v23 = add_(v21, v22);
        const auto v24 = round_pairs(v23);
        LOOP(i4, 4) store_stream<32, 32>(out3 + 2097152 * i2 + 524288 * i4 + 128 * i0 + i1, v20);
        LOOP(i4, 4) store_stream<32, 32>(out3 + 2097152 * i2 + 524288 * i4 + 128 * i0 + i1 + 64, v24);
      }
    }
    ROWS(i5, 32) {
      LANES(i1, 32, 64, VECTORS(32, 64)) {
        const auto v25 = load_pairs<32, 8>(in0 + 4096 * i0 + 128 * i5 + i1);
        const auto v26 = cast<float>(v25);
        const auto v27 = mul_(v26, kv2[i1_v]);
        const auto v28 = load_pairs<32, 8>(in0 + 4096 * i0 + 128 * i5 + i1 + 64);
        const auto v29 = cast<float>(v28);
        const auto v30 = neg_(v29);
        const auto v31 = mul_(v30, kv3[i1_v]);
        const auto v32 = add_(v27, v31);
        const auto v33 = round_pairs(v32);
        const auto v34 = mul_(v29, kv2[i1_v]);
        const auto v35 = mul_(v26, kv3[i1_v]);
        const auto v36 = add_(v34, v35);
        const auto v37 = round_pairs(v36);
        store_stream<32, 32>(out2 + 524288 * i5 + 128 * i0 + i1, v33);
        store_stream<32, 32>(out2 + 524288 * i5 + 128 * i0 + i1 + 64, v37);
      }
    }
  }
  stream_fence();
}
