"""Products of bf16 by pairs, by AMX, and by MKL, and of f32 by AMX: what OpenBLAS gives of operands in f32, whatever
their sizes and exponents."""

from typing import NamedTuple

import numpy as np
import pytest

from codegen.families import FAMILIES
from codegen.gemm.call import AMX, AMX_FEATURE, OPENBLAS, PAIRS
from codegen.hardware.libraries import LIBRARIES, MKL
from codegen.toolchain.cpu import host_features
from codegen.workbench.workbench import Workbench
from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.dtype import DType, bf16, f32
from tests.support.candidates import run_kernel
from tests.support.products import dense_graph

pytestmark = pytest.mark.skipif("avx512_bf16" not in host_features(), reason="needs AVX512_BF16")

Array = np.ndarray
LEAST = float(np.finfo(np.float32).smallest_subnormal)
BLOCK = (512, 384, 256)  # rows, columns, depth: PAIRS_M, BLOCK_N and DEPTH in gemm_cpu.h and gemm_pairs_cpu.h


class Way(NamedTuple):
    """A library, and the dtype of operands that it multiplies as they are, or by pieces."""

    library: str
    dtype: DType

    def product(self, m: int, k: int, n: int) -> Graph:
        return dense_graph([(m, k), (k, n)], lambda a, b: build.matmul(a, b, f32), self.dtype)

    def normal(self, seed: int, *sizes: int, scale: float = 1.0) -> Array:
        return (np.random.default_rng(seed).standard_normal(sizes) * scale).astype(self.dtype.numpy)


@pytest.fixture(
    params=[Way(PAIRS, bf16), Way(AMX, bf16), Way(MKL, bf16), Way(AMX, f32)], ids=lambda w: "-".join(map(str, w))
)
def way(request: pytest.FixtureRequest) -> Way:
    if request.param.library == MKL and LIBRARIES[MKL].find() is None:
        pytest.skip("needs PyTorch with MKL")
    if request.param.library == AMX and AMX_FEATURE not in host_features():
        pytest.skip("needs AMX_BF16")
    return request.param


def both(graph: Graph, inputs: list[Array], way: Way, bench: Workbench) -> tuple[Array, Array]:
    """The product by the library, and OpenBLAS's product of operands in f32."""
    by = {}
    for name in (way.library, OPENBLAS):
        kernel = FAMILIES["aten"].emit(graph, f"aten{{library={name},rows=1,columns=1}}", bench.device)
        (by[name],) = run_kernel(graph, kernel, inputs, bench)
    return by[way.library], by[OPENBLAS]


def assert_near(found: Array, expected: Array, a: Array, b: Array) -> None:
    """Fails where `found` is further off than a sum in another order: parts of an ulp of the sum of magnitudes for each
    term, or half of LEAST where partial sums are denormal, since each is rounded to a multiple of LEAST. The errors of
    the terms count as independent. Code that flushes denormals to zero is off by all of them and fails."""
    size = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    off = np.abs(found.astype(np.float64) - expected)
    assert (off <= np.sqrt(a.shape[1]) * np.maximum(2e-7 * size, LEAST / 2)).all()


@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(1, 17, 300), (6, 64, 64), (7, 65, 65), (5, 1001, 63), (258, 512, 384), (300, 301, 500), (1030, 300, 390)],
)
@pytest.mark.sweep(0.25)
def test_sizes(way: Way, bench: Workbench, m: int, k: int, n: int) -> None:
    a, b = way.normal(1, m, k), way.normal(2, k, n)
    found, expected = both(way.product(m, k, n), [a, b], way, bench)
    assert_near(found, expected, a, b)


@pytest.mark.sweep(0.4)
@pytest.mark.parametrize(("m", "k", "n"), [(33, 100, 50), (40, 6200, 300), (300, 1600, 33), (1, 6161, 40)])
def test_results_are_rounded_once(way: Way, bench: Workbench, m: int, k: int, n: int) -> None:
    """Into bf16, long sums among them, which are put together from parts."""
    a, b = way.normal(15, m, k), way.normal(16, k, n)
    graph = dense_graph([(m, k), (k, n)], lambda x, y: build.matmul(x, y, bf16), way.dtype)
    rounded, _ = both(graph, [a, b], way, bench)
    sums, expected = both(way.product(m, k, n), [a, b], way, bench)
    assert_near(sums, expected, a, b)
    np.testing.assert_array_equal(rounded.astype(np.float32), sums.astype(bf16.numpy).astype(np.float32))


@pytest.mark.sweep(0.15)
@pytest.mark.parametrize("a_scale", [1e-38, 1e-20, 1.0, 1e18])
@pytest.mark.parametrize("b_scale", [1e-38, 1e-24, 1e-10, 1e17])
def test_no_denormal_is_lost(way: Way, bench: Workbench, a_scale: float, b_scale: float) -> None:
    """Operands, products and differences of products that are denormal, in one block of several and in all."""
    m, k, n = BLOCK[0] + 7, 2 * BLOCK[2] + 3, BLOCK[1] + 9
    a, b = way.normal(3, m, k, scale=a_scale), way.normal(4, k, n)
    a[:, 1::2], b[1::2] = -a[:, :-1:2], b[:-1:2]  # all but the last product cancel
    b[: BLOCK[2]] = (b[: BLOCK[2]].astype(np.float32) * np.float32(b_scale)).astype(way.dtype.numpy)
    found, expected = both(way.product(m, k, n), [a, b], way, bench)
    assert_near(found, expected, a, b)


@pytest.mark.sweep(0.3)
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("size", [2.0**120, np.inf])
def test_denormals_times_large_elements_are_not_lost(way: Way, bench: Workbench, swapped: bool, size: float) -> None:
    """Sums that are not small, of products that instructions take for 0: the operand is denormal, the other large."""
    m, k, n = 64, 300, 70
    a, b = way.normal(13, m, k), way.normal(14, k, n)
    a[5, 7], b[7, 9] = 2.0**-130, size
    if size == np.inf:
        a[4], b[7, 9] = 0.5, np.inf
    if swapped:
        found, expected = (x.T for x in both(way.product(n, k, m), [b.T.copy(), a.T.copy()], way, bench))
    else:
        found, expected = both(way.product(m, k, n), [a, b], way, bench)
    if size == np.inf:
        assert found[5, 9] == np.inf == found[4, 9]
        return
    assert_near(found, expected, a, b)
    assert abs(expected[5, 9]) > 1e-6
    a[5, 7] = 0
    with pytest.raises(AssertionError):
        assert_near(product_of(a, b), expected, a, b)


def product_of(a: Array, b: Array) -> Array:
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)


def test_blocks_of_zeros(way: Way, bench: Workbench) -> None:
    m, k, n = 40, 2 * BLOCK[2], 70
    a, b = way.normal(5, m, k, scale=1e-30), way.normal(6, k, n, scale=1e-9)
    a[:, BLOCK[2] :] = 0
    found, expected = both(way.product(m, k, n), [a, b], way, bench)
    if way.library == PAIRS:  # as all sums are denormal, OpenBLAS has computed them again
        assert np.array_equal(found, expected)
    assert_near(found, expected, a, b)
    assert (np.abs(found[found != 0]) < np.finfo(np.float32).tiny).any()


def test_infinities_and_nans(way: Way, bench: Workbench) -> None:
    a, b = np.ones((40, 64), way.dtype.numpy), np.ones((64, 70), way.dtype.numpy)
    a[3, 5], a[4, 6], b[7, 9], a[5, 7] = np.nan, np.inf, -np.inf, 0
    found, expected = both(way.product(40, 64, 70), [a, b], way, bench)
    np.testing.assert_array_equal(found, expected)
    assert np.isnan(found[5, 9])


@pytest.mark.parametrize("few", [True, False])
def test_small_sums_among_large_ones(way: Way, bench: Workbench, few: bool) -> None:
    """Rows and columns whose products are denormal: where few meet they are computed one by one."""
    m, k, n = 90, BLOCK[2] + 40, 130
    a, b = way.normal(7, m, k), way.normal(8, k, n)
    rows = slice(5, 7) if few else slice(5, 60)
    a[rows] = way.normal(9, *a[rows].shape, scale=1e-22)
    b[:, 3:5] = way.normal(10, k, 2, scale=1e-22)
    a[20] = 0
    found, expected = both(way.product(m, k, n), [a, b], way, bench)
    assert_near(found, expected, a, b)
    assert (np.abs(expected[rows, 3:5]) < np.finfo(np.float32).tiny).all()
    assert (found[rows, 3:5] != 0).any()
    assert (found[20] == 0).all()


@pytest.mark.sweep(0.3)
@pytest.mark.parametrize("a_turned", [False, True])
@pytest.mark.parametrize("b_turned", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e-22])
def test_operands_that_lie_the_other_way_round(
    way: Way, bench: Workbench, a_turned: bool, b_turned: bool, scale: float
) -> None:
    """Transposed operands, at scale 1 and at a scale where all sums are so small that they are computed again."""
    m, k, n = BLOCK[0] + 21, BLOCK[2] + 35, BLOCK[1] + 50
    a, b = way.normal(11, m, k, scale=scale), way.normal(12, k, n, scale=scale)
    shapes = [(k, m) if a_turned else (m, k), (n, k) if b_turned else (k, n)]
    graph = dense_graph(
        shapes,
        lambda x, y: build.matmul(build.transpose(x) if a_turned else x, build.transpose(y) if b_turned else y, f32),
        way.dtype,
    )
    inputs = [np.ascontiguousarray(a.T) if a_turned else a, np.ascontiguousarray(b.T) if b_turned else b]
    found, expected = both(graph, inputs, way, bench)
    assert_near(found, expected, a, b)
    with pytest.raises(AssertionError):
        assert_near(np.zeros_like(expected), expected, a, b)  # as if they were flushed
