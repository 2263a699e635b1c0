"""Products of bf16 in registers that are tiles, by the instructions where this machine has them, and elsewhere by a
model of them: the right sums go to the right places, and nothing beside the operands is read."""

import ctypes
from itertools import product

import numpy as np
import pytest

from codegen.gemm.tile_registers import MOST_DEPTH
from codegen.toolchain.cpu import host_features
from fusion_ir.dtype import bf16
from testing.vec_harness import Library
from tests.support import amx_model
from tests.support.whole import some

pytestmark = pytest.mark.skipif("avx512_bf16" not in host_features(), reason="needs AVX512_BF16")

Array = np.ndarray
LARGE, SMALL = 2.0**26, 2.0**-70
SIZES = [
    (1, 1, 1),
    (5, 40, 0),
    (32, 32, 32),
    (32, 33, 70),
    (33, 31, 65),
    (5, 300, 257),
    (70, 40, 6200),
    (64, 520, 96),
    (31, 257, 1),
    (27, 27, 64),
    (17, 3, 415),
    (96, 64, 800),
]
LAYOUTS = [*product((False, True), repeat=4)]  # rows along the sum, columns too, C turned, bf16
CALLS = """
template <class R, bool TURNED, class C>
static amx::Found product(long m, long n, long k, amx::Source x, amx::Source y, C* c, long ldc) {
  if constexpr (SAME<C, float>)
    if (k > amx::MOST_DEPTH || k == 0) return amx::long_product<R, TURNED>(m, n, k, x, y, c, ldc);
  return amx::product<R, TURNED>(m, n, k, x, y, c, ldc);
}
template <class R, bool TURNED, class C>
static int call(long m, long n, long k, const bf16* x, const bf16* y, C* c, long ldc, int x_along, int y_along) {
  const amx::Source left{x, x_along ? k : 1, x_along ? 1 : m}, right{y, y_along ? k : 1, y_along ? 1 : n};
  const amx::Found found = product<R, TURNED>(m, n, k, left, right, c, ldc);
  return found.is_small | found.has_large_rows << 1 | found.has_large_columns << 2;
}
#define CALL(R, NAME) \\
  extern "C" int NAME(int turned, int rounds, long m, long n, long k, const bf16* x, const bf16* y, void* c, \\
                      long ldc, int x_along, int y_along) { \\
    if (rounds) return turned ? call<R, true>(m, n, k, x, y, (bf16*)c, ldc, x_along, y_along) \\
                              : call<R, false>(m, n, k, x, y, (bf16*)c, ldc, x_along, y_along); \\
    return turned ? call<R, true>(m, n, k, x, y, (float*)c, ldc, x_along, y_along) \\
                  : call<R, false>(m, n, k, x, y, (float*)c, ldc, x_along, y_along); \\
  }
CALL(Model, model)
CALL(amx::Registers, amx_registers)
extern "C" int permitted() { return amx::permitted(); }
extern "C" long most_depth() { return amx::MOST_DEPTH; }
"""


@pytest.fixture(scope="module")
def library() -> Library:
    return amx_model.library_of("gemm_amx_cpu.h", CALLS)


@pytest.fixture(params=amx_model.FUNCTIONS)
def function(request: pytest.FixtureRequest, library: Library) -> str:
    return amx_model.function_of(request.param, library)


def multiplied(
    library: Library, name: str, x: Array, y: Array, layout: tuple[bool, bool, bool, bool]
) -> tuple[Array, int]:
    """See `amx_model.multiplied`. layout: with whether results are bf16."""
    *lies, rounds = layout
    dtype = bf16.numpy if rounds else np.dtype(np.float32)
    return amx_model.multiplied(library, name, (lies[2], rounds), x, y, (lies[0], lies[1], lies[2]), dtype)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sums_are_right(library: Library, function: str, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(k)
    x, y = (rng.standard_normal((rows, k)).astype(bf16.numpy) for rows in (m, n))
    expected = x.astype(np.float64) @ y.astype(np.float64).T
    size = np.abs(x.astype(np.float64)) @ np.abs(y.astype(np.float64)).T
    layouts = [layout for layout in LAYOUTS if k <= MOST_DEPTH or not layout[3]]
    for layout in some(layouts, 6, f"tiles {sizes}"):
        values, found = multiplied(library, function, x, y, layout)
        bound = 3e-7 * np.sqrt(k) * size + (2.0**-8 * np.abs(expected) if layout[3] else 0)  # bf16 has 8 bits
        assert (np.abs(values - expected) <= bound).all(), layout
        assert not found & 6


@pytest.mark.parametrize("layout", LAYOUTS[:8], ids=str)
def test_what_is_found_of_operands_and_sums(
    library: Library, function: str, layout: tuple[bool, bool, bool, bool]
) -> None:
    x, y = np.ones((40, 70), bf16.numpy), np.ones((300, 70), bf16.numpy)
    assert multiplied(library, function, x, y, layout)[1] == 0
    y[299, 69] = -LARGE
    assert multiplied(library, function, x, y, layout)[1] == 4
    y[299, 69], x[39, 69] = 1, np.nan
    assert multiplied(library, function, x, y, layout)[1] == 2
    x[39] = 0
    x[39, 0] = SMALL
    assert multiplied(library, function, x, y, layout)[1] == 1


def test_longest_sums_that_are_not_cut(library: Library) -> None:
    library.symbol("most_depth").restype = ctypes.c_long
    assert library.symbol("most_depth")() == MOST_DEPTH


def test_what_is_found_of_a_sum_that_is_cut(library: Library, function: str) -> None:
    """Parts may be small where the whole is not; operands are large if any part is."""
    x, y = np.ones((40, 7000), bf16.numpy), np.ones((40, 7000), bf16.numpy)
    x[:, :6200] = 0
    assert multiplied(library, function, x, y, (True, True, False, False))[1] == 0
    x[3, 5] = y[3, 5] = LARGE
    assert multiplied(library, function, x, y, (True, True, False, False))[1] == 6
