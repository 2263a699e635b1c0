"""Ops that are exact give the bits of their reference, at every width, for every compute type."""

import numpy as np
import pytest

from fusion_ir.ops import Op
from testing.vec_compare import differing
from testing.vec_harness import COMPUTE, Function, Library, build_functions
from testing.vec_ops import EXACT, functions, operands_for
from tests.support.whole import one_part

WIDTHS = (1, 8, 32)
EVERY = [(op, f) for w in WIDTHS for op, f in functions(EXACT, w)]
FUNCTIONS: dict[str, tuple[Op, Function]] = {f.name: (op, f) for op, f in one_part(EVERY, len(EVERY) // 16, "exact")}


@pytest.fixture(scope="module")
def library() -> Library:
    return build_functions(f for _, f in FUNCTIONS.values())


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.soak
def test_exact_op(name: str, library: Library) -> None:
    op, function = FUNCTIONS[name]
    arrays = operands_for(op, function.operands, seed=len(name))
    with np.errstate(all="ignore"):
        expected = np.ascontiguousarray(op.reference(None, *arrays)).astype(function.result.numpy, copy=False)
    got = library.run(function, *arrays)
    wrong = differing(got, expected)[:5]
    assert wrong.size == 0, [(*(a[i] for a in arrays), "gave", got[i], "expected", expected[i]) for i in wrong]


def test_every_compute_type_is_tried() -> None:
    assert {t for _, f in EVERY for t in f.operands} == set(COMPUTE)
