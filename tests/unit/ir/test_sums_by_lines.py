"""Reductions of large tensors, taken block by block, give the bits that each line gives by itself."""

import numpy as np
import pytest

from fusion_ir.arithmetic.cache_blocks import BLOCK_ELEMENTS
from fusion_ir.ops import make
from testing.tensors import evaluate_one

LARGE = [
    ((300, 700), (0,)),
    ((300, 700), (1,)),
    ((20, 90, 110), (1,)),
    ((20, 90, 110), (0, 2)),
    ((20, 90, 110), (0, 1)),
    ((3, 70_001), (1,)),
    ((70_001, 3), (0,)),
    ((200_003,), (0,)),
]


@pytest.mark.parametrize(("shape", "axes"), LARGE)
@pytest.mark.parametrize(
    ("op", "dtype"),
    [
        *((op, dtype) for op in ("sum", "mean", "prod", "var") for dtype in (np.float32, np.float64)),
        *((op, np.int16) for op in ("sum", "prod")),
    ],
)
def test_blocks_of_lines_give_the_bits_of_each_line(shape, axes, op: str, dtype) -> None:
    rng = np.random.default_rng(2)
    x = (1 + 1e-3 * rng.standard_normal(shape)).astype(dtype) if op == "prod" else rng.normal(0, 9, shape).astype(dtype)
    assert x.size > BLOCK_ELEMENTS
    attrs = {"axes": axes, **({"correction": 1} if op == "var" else {})}
    got = evaluate_one(lambda a: make(op, [a], attrs), x)
    kept = [a for a in range(x.ndim) if a not in axes]
    for at in [tuple(int(rng.integers(x.shape[a])) for a in kept) for _ in range(20)] + [(-1,) * len(kept)]:
        line = x[tuple(at[kept.index(a)] if a in kept else slice(None) for a in range(x.ndim))]
        alone = evaluate_one(lambda a: make(op, [a], {**attrs, "axes": (0,)}), np.ascontiguousarray(line).reshape(-1))
        assert got[at].tobytes() == np.asarray(alone).tobytes()
