"""Which libraries multiply on a CPU, and in which order they are tried."""

import pytest

from codegen.gemm.call import PAIRS, call_on_cpu, first_libraries, libraries_for
from codegen.gemm.dims import contraction
from codegen.gemm.panels import digits, padded
from fusion_ir import building as build
from fusion_ir.dtype import bf16, f32
from fusion_ir.records import Ceilings, Device
from tests.support.products import dense_graph


def device(bf16_gflops: float | None) -> Device:
    rates = () if bf16_gflops is None else (("f32", 100.0), ("bf16", bf16_gflops))
    return Device(
        target="cpu",
        name="A CPU",
        arch="x86-64",
        features=("avx512_bf16", "fma"),
        units=2,
        memory_bytes=1 << 30,
        cache_bytes=1 << 20,
        vector_bytes=64,
        toolchain="g++",
        ceilings=Ceilings(
            copy_gbps=((0, 10.0),), read_gbps=((0, 10.0),), launch_us=1.0, fma_gflops=100.0, product_gflops=rates
        ),
    )


@pytest.mark.parametrize(
    ("bf16_gflops", "are_fast"), [(None, True), (100.0, False), (110.0, False), (200.0, True), (1500.0, False)]
)
def test_pairs_are_tried_where_their_instruction_is_faster(bf16_gflops: float | None, are_fast: bool) -> None:
    """1500: what a library reaches by tiles of registers says nothing of pairs, and is more than they give."""
    graph = dense_graph([(64, 96), (96, 80)], lambda x, w: build.matmul(x, w, f32), bf16)
    node = graph.outputs[0].node
    found = contraction(graph, node, digits(node, padded(node.sizes, range(2))), widened=True)
    call = call_on_cpu(found, fma=True)  # type: ignore[arg-type]
    on = device(bf16_gflops)
    libraries = libraries_for(call, graph, on)  # type: ignore[arg-type]
    assert libraries.index(PAIRS) == (0 if are_fast else len(libraries) - 1)
    assert (PAIRS in first_libraries(call, graph, on)) == are_fast  # type: ignore[arg-type]
