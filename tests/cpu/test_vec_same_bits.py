"""Every spelling of the headers gives the same bits: compilers, instruction sets, and CUDA's header on the host."""

import numpy as np
import pytest

from fusion_ir.dtype import DTYPES
from fusion_ir.ops import Op
from tests.support.vec_compare import differing
from tests.support.vec_harness import CTYPE, NATIVE, SPELLINGS, Function, Library, build_everywhere, random_bits, specials
from tests.support.vec_ops import EXACT, INEXACT, functions, operands_for

WIDTH = 16
OPS_FUNCTIONS: dict[str, tuple[Op, Function]] = {f.name: (op, f) for op, f in functions((*EXACT, *INEXACT), WIDTH)}
CASTS = [
    Function(f"cast_{a}_{b}", f"cast<{CTYPE[b.name]}>({{0}})", (a,), b, WIDTH) for a in DTYPES.values() for b in DTYPES.values()
]


@pytest.fixture(scope="module")
def libraries() -> dict[str, Library]:
    return build_everywhere([*(f for _, f in OPS_FUNCTIONS.values()), *CASTS])


def compare(function: Function, arrays: list[np.ndarray], libraries: dict[str, Library]) -> None:
    expected = libraries[NATIVE.name].run(function, *arrays)
    for name, library in libraries.items():
        got = library.run(function, *arrays)
        wrong = differing(got, expected)
        assert wrong.size == 0, (name, wrong.size, [(*(a[i] for a in arrays), got[i], expected[i]) for i in wrong[:5]])


@pytest.mark.parametrize("name", OPS_FUNCTIONS)
def test_op(name: str, libraries: dict[str, Library]) -> None:
    op, function = OPS_FUNCTIONS[name]
    compare(function, operands_for(op, function.operands, seed=len(name), count=20000), libraries)


@pytest.mark.parametrize("function", CASTS, ids=lambda f: f.name)
def test_cast(function: Function, libraries: dict[str, Library]) -> None:
    rng = np.random.default_rng(0)
    (source,) = function.operands
    compare(function, [np.concatenate([specials(source), random_bits(source, 70000, rng)])], libraries)


def test_cuda_on_the_host_is_among_them(libraries: dict[str, Library]) -> None:
    assert {"g++ native", "CUDA on the host"} <= libraries.keys() <= {s.name for s in SPELLINGS}
