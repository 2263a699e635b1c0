"""Which libraries multiply on a CPU, and in which order they are tried."""

import pytest

from codegen.gemm.call import AMX, AMX_FEATURE, PAIRS, GemmCall, call_on_cpu, first_libraries, libraries_for
from codegen.gemm.dims import Contraction, contraction
from codegen.gemm.panels import digits, padded
from codegen.hardware.libraries import MKL
from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.dtype import DType, bf16, f16, f32
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


def called(dtype: DType, rows: int = 64, depth: int = 96, columns: int = 80) -> tuple[GemmCall, Graph]:
    graph = dense_graph([(rows, depth), (depth, columns)], lambda x, w: build.matmul(x, w, f32), dtype)
    node = graph.outputs[0].node
    found = contraction(graph, node, digits(node, padded(node.sizes, range(2))), widened=True)
    assert isinstance(found, Contraction)
    call = call_on_cpu(found, fma=True)
    assert isinstance(call, GemmCall)
    return call, graph


@pytest.mark.parametrize(
    ("bf16_gflops", "are_fast"), [(None, True), (100.0, False), (110.0, False), (200.0, True), (1500.0, False)]
)
def test_pairs_are_tried_where_their_instruction_is_faster(bf16_gflops: float | None, are_fast: bool) -> None:
    """1500: what a library reaches by tiles of registers says nothing of pairs, and is more than they give."""
    call, graph = called(bf16)
    on = device(bf16_gflops)
    libraries = libraries_for(call, graph, on)
    assert libraries.index(PAIRS) == (0 if are_fast else len(libraries) - 1)
    assert (PAIRS in first_libraries(call, graph, on)) == are_fast


@pytest.mark.parametrize(("bf16_gflops", "is_first"), [(None, True), (100.0, False), (200.0, True), (1500.0, True)])
def test_intels_library_comes_first_where_it_is_faster_in_bf16(bf16_gflops: float | None, is_first: bool) -> None:
    about = {"features": (MKL, "avx512_bf16", "fma"), "name": "Intel(R) Xeon(R) Processor"}
    on = device(bf16_gflops).model_copy(update=about)
    first = next(library for library in libraries_for(*called(bf16), on) if library != PAIRS)
    assert (first == MKL) == is_first
    assert libraries_for(*called(f32), on)[0] == MKL


def test_registers_that_are_tiles_come_first_where_there_are_any() -> None:
    with_tiles = device(1500.0).model_copy(update={"features": (AMX_FEATURE, "avx512_bf16", "fma")})
    assert first_libraries(*called(bf16), with_tiles)[0] == AMX
    assert AMX not in libraries_for(*called(bf16), device(1500.0))
    assert AMX not in libraries_for(*called(f16), with_tiles)
    assert first_libraries(*called(f32), with_tiles)[0] == AMX, "by pieces"
    assert AMX not in libraries_for(*called(f32), device(1500.0))


@pytest.mark.parametrize("sizes", [(8, 96, 80), (64, 32, 80), (64, 96, 8)])
def test_pieces_of_few_elements_are_not_worth_their_making(sizes: tuple[int, int, int]) -> None:
    with_tiles = device(1500.0).model_copy(update={"features": (AMX_FEATURE, "avx512_bf16", "fma")})
    assert AMX not in libraries_for(*called(f32, *sizes), with_tiles)
