"""Products of f32 by pieces in registers that are tiles, by the instructions where this machine has them, and elsewhere
by a model of them: as accurate as multiply-adds, whatever the operands' layout and exponents, and nothing beside the
operands is read."""

import ctypes
from itertools import product

import numpy as np
import pytest

from codegen.gemm.tile_registers import MOST_COLUMNS, PANEL_DEPTH
from codegen.toolchain.cpu import host_features
from testing.vec_harness import Library
from tests.support import amx_model
from tests.support.whole import some

pytestmark = pytest.mark.skipif("avx512_bf16" not in host_features(), reason="needs AVX512_BF16")

Array = np.ndarray
SIZES = [
    (1, 1, 1),
    (5, 40, 0),
    (32, 32, 32),
    (32, 33, 70),
    (33, 31, 65),
    (5, 300, 257),
    (17, 530, 15),
    (40, 70, 1100),
    (64, 257, 520),
    (96, 64, 800),
]
LAYOUTS = [*product((False, True), repeat=3)]  # rows along the sum, columns too, C turned
CALLS = """
template <class R, bool TURNED>
static int call(long m, long n, long k, const float* x, const float* y, float* c, long ldc, int x_along, int y_along) {
  const split::Source left{x, x_along ? k : 1, x_along ? 1 : m}, right{y, y_along ? k : 1, y_along ? 1 : n};
  const split::Found found = split::product<R, TURNED>(m, n, k, left, right, c, ldc);
  return found.is_small | found.is_wrong << 1;
}
#define CALL(R, NAME) \\
  extern "C" int NAME(int turned, long m, long n, long k, const float* x, const float* y, float* c, long ldc, \\
                      int x_along, int y_along) { \\
    return turned ? call<R, true>(m, n, k, x, y, c, ldc, x_along, y_along) \\
                  : call<R, false>(m, n, k, x, y, c, ldc, x_along, y_along); \\
  }
CALL(Model, model)
CALL(amx::Registers, amx_registers)
extern "C" int permitted() { return amx::permitted(); }
extern "C" long most_columns() { return split::MOST_COLUMNS; }
extern "C" long panel_depth() { return split::PANEL_STEPS * split::DEPTH; }
"""
SMALL, WRONG = 1, 2


@pytest.fixture(scope="module")
def library() -> Library:
    return amx_model.library_of("gemm_split_cpu.h", CALLS)


@pytest.fixture(params=amx_model.FUNCTIONS)
def function(request: pytest.FixtureRequest, library: Library) -> str:
    return amx_model.function_of(request.param, library)


def multiplied(
    library: Library, name: str, x: Array, y: Array, layout: tuple[bool, bool, bool] = (True, True, False)
) -> tuple[Array, int]:
    """See `amx_model.multiplied`."""
    return amx_model.multiplied(library, name, (layout[2],), x, y, layout, np.dtype(np.float32))


def exact(x: Array, y: Array) -> tuple[Array, Array]:
    """Sums of products in f64, and of their magnitudes."""
    wide = x.astype(np.float64), y.astype(np.float64)
    return wide[0] @ wide[1].T, np.abs(wide[0]) @ np.abs(wide[1]).T


def normal(seed: int, *sizes: int) -> Array:
    return np.random.default_rng(seed).standard_normal(sizes).astype(np.float32)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sums_are_right(library: Library, function: str, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    x, y = normal(k, m, k), normal(k + 1, n, k)
    expected, size = exact(x, y)
    for layout in some(LAYOUTS, 4, f"pieces {sizes}"):
        values, found = multiplied(library, function, x, y, layout)
        assert (np.abs(values - expected) <= 1e-7 * np.sqrt(max(k, 1)) * size).all(), layout
        assert not found


def test_they_are_as_accurate_as_sums_in_f32(library: Library, function: str) -> None:
    """Root of the mean square of the errors, beside that of NumPy's sums of products rounded one by one."""
    x, y = normal(1, 40, 1000), normal(2, 50, 1000)
    expected, _ = exact(x, y)
    values, _ = multiplied(library, function, x, y)
    rounded = np.stack([np.cumsum(row * y, axis=1, dtype=np.float32)[:, -1] for row in x])
    errors = [np.sqrt(np.mean((found - expected) ** 2)) for found in (values, rounded)]
    assert errors[0] < errors[1]


@pytest.mark.parametrize("k", [1, 2, 3, 40])
def test_few_products_are_as_good_as_multiply_adds(library: Library, function: str, k: int) -> None:
    """A rounding for each, and half of one for what is left out, whatever the operands' bits."""
    bits = np.random.default_rng(k).integers(0, 1 << 32, (2, 64, k), dtype=np.uint64)
    exponents = (bits >> 23) % 20 + 117
    x, y = ((bits & 0x807FFFFF) | exponents << 23).astype(np.uint32).view(np.float32)
    expected, size = exact(x, y)
    values, found = multiplied(library, function, x, y)
    assert (np.abs(values - expected) <= 2.0**-24 * (k + 0.5) * size).all()
    assert not found


@pytest.mark.parametrize("shift", [-100, -60, -45, -30, 0, 20, 24, 60, 80])
def test_what_is_not_told_is_not_lost(library: Library, function: str, shift: int) -> None:
    """Operands of all exponents: where nothing is found, or sums are not small, they are as accurate as others."""
    rng = np.random.default_rng(shift + 200)
    x, y = normal(3, 40, 200), normal(4, 48, 200)
    x = np.ldexp(x, rng.integers(-20, 20, x.shape) + shift).astype(np.float32)
    y = np.ldexp(y, rng.integers(-20, 20, y.shape)).astype(np.float32)
    expected, size = exact(x, y)
    values, found = multiplied(library, function, x, y)
    assert bool(found & WRONG) == bool((np.abs(x) >= 2.0**25).any() and shift < 0), (found, shift)
    right = np.abs(values - expected) <= 1e-6 * np.sqrt(200) * size
    if not found & WRONG:
        assert right[np.abs(values) >= 2.0**-60].all()
    if not found:
        assert right.all()


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_what_is_found_of_operands_and_sums(library: Library, function: str, layout: tuple[bool, bool, bool]) -> None:
    x, y = np.ones((40, 70), np.float32), np.ones((300, 70), np.float32)

    def found() -> int:
        return multiplied(library, function, x, y, layout)[1]

    assert found() == 0
    x[39] = 0
    assert found() == 0, "nothing can have been lost of sums that are 0"
    x[39, 0] = 2.0**-101
    assert found() == SMALL
    y[299, 69] = -(2.0**26)
    assert found() == SMALL | WRONG
    x[39, 0] = 2.0**-60
    assert found() == 0
    for value in (np.inf, np.nan, 2.0**127, -np.inf):
        y[299, 69] = value
        assert found() == WRONG
    y[299, 69], x[39, 0] = 1, 2.0**-149
    assert found() == SMALL


def test_sizes_of_panels(library: Library) -> None:
    for name, expected in (("most_columns", MOST_COLUMNS), ("panel_depth", PANEL_DEPTH)):
        library.symbol(name).restype = ctypes.c_long
        assert library.symbol(name)() == expected
