"""argmax and argmin: the first NaN, else the first of the best, for any data, axis and dtype, bit for bit."""

from itertools import product

import numpy as np
import pytest

from codegen.families import FAMILIES
from codegen.workbench.workbench import Workbench
from fusion_ir import building as B
from fusion_ir.arithmetic.conversions import round_to
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES
from fusion_ir.reference.interpreter import interpret
from testing.tensors import graph_of, spec
from tests.support.devices import CPU_DEVICE
from tests.support.one_kernel import run_kernel
from tests.support.whole import in_turn

NARROW = "reduction{lanes=16,fetch=0,store=plain,tile=1024,block=0,interleave=0,tasks=1}"
WIDE = "reduction{lanes=64,fetch=0,store=plain,tile=1024,block=0,interleave=0,tasks=1}"
NUMBERS = [name for name in DTYPES if name != "bool"]


def both(sizes: tuple[int, ...], dtype: str, axis: int) -> Graph:
    return graph_of([spec(sizes, DTYPES[dtype])], lambda x: [B.argmax(x, axis), B.argmin(x, axis)])


def rows_of(dtype: str, n: int) -> np.ndarray:
    """Rows in which the best is hard to tell: ties, zeros of both signs, infinities, limits, NaNs at every place."""
    rng = np.random.default_rng(n)
    made = DTYPES[dtype]
    if made.is_integer:
        info = np.iinfo(made.numpy)
        rows = [np.full(n, info.min), np.full(n, info.max), rng.integers(0, 3, n), rng.integers(info.min, info.max, n)]
        rows += [np.where(np.arange(n) == at, edge, base) for at in (0, n // 2, n - 1)
                 for edge, base in ((info.max, info.min), (info.min, info.max))]  # fmt: skip
        return np.stack(rows).astype(made.numpy)
    few = rng.integers(-1, 2, n).astype(np.float32)
    rows = [np.full(n, v, np.float32) for v in (-np.inf, np.inf, np.nan, 0.0, -0.0)]
    rows += [few, np.where(few == 0, -0.0, np.abs(few) * 0.0), rng.standard_normal(n).astype(np.float32)]
    for at in {0, 1 % n, n // 2, n - 1}:
        for value in (np.nan, np.inf, -np.inf):
            for base in (few, np.full(n, -np.inf, np.float32), np.full(n, np.inf, np.float32)):
                rows.append(np.where(np.arange(n) >= at, value, base))
                rows.append(np.where(np.arange(n) == at, value, base))
    return round_to(np.stack(rows).astype(np.float32), made)


@pytest.mark.parametrize("n", [1, 2, 17, 64, 131])
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.sweep(0.07)
def test_ties_zeros_infinities_and_nans(bench: Workbench, dtype: str, n: int) -> None:
    x = rows_of(dtype, n)
    for axis, data, schedule in ((1, x, WIDE), (0, np.ascontiguousarray(x.T), NARROW)):
        g = both(data.shape, dtype, axis)
        for got, expected in zip(
            run_kernel(bench, g, "reduction", schedule, [data]), interpret(g, [data]), strict=True
        ):
            np.testing.assert_array_equal(got, expected)


def test_an_axis_of_several_digits(bench: Workbench) -> None:
    """The axis is put together from two that lie apart in memory: positions do not come in order."""
    inputs = [spec((3, 8, 5, 16), DTYPES["f32"])]

    def build(x: Node) -> Node:
        return B.argmax(B.reshape(B.permute(x, (0, 2, 3, 1)), (15, 128)), 1)

    g = graph_of(inputs, build)
    x = np.random.default_rng(0).integers(0, 4, (3, 8, 5, 16)).astype(np.float32)
    x[1, 2, 3, 4] = np.nan
    for schedule in (NARROW, WIDE):
        np.testing.assert_array_equal(run_kernel(bench, g, "reduction", schedule, [x])[0], interpret(g, [x])[0])


def test_positions_take_no_more_lanes_than_the_operand() -> None:
    """64 bits for each would cost more than the tensor: 5.1 ms against 2.2 for 8192 x 4096 floats."""
    for dtype, ctype in (("f32", "int32_t"), ("bf16", "int32_t"), ("f64", "int64_t"), ("i8", "int32_t")):
        kernel = FAMILIES["reduction"].emit(both((64, 100), dtype, 1), WIDE, CPU_DEVICE)
        assert f", 64, {ctype}> " in kernel.source


@pytest.mark.soak
@pytest.mark.parametrize(("n", "split"), in_turn(product((17, 64, 131), (1, 3, 16, 40)), 1, "splits"))
def test_an_axis_that_is_put_together(bench: Workbench, n: int, split: int) -> None:
    """argmax and argmin over an axis of two concatenated tensors, or of one tensor and its padding: positions in the
    second part count on from the first."""
    x = rows_of("f32", n)
    specs = [spec((len(x), size), DTYPES["f32"]) for size in (n, split)]
    graphs = [
        graph_of(specs, lambda a, b: [B.argmax(B.cat([a, b], 1), 1), B.argmin(B.cat([b, B.neg(a)], 1), 1)]),
        graph_of(specs, lambda a, b: [B.argmin(B.pad(a, (0, split), (0, 1)), 1), B.neg(b)]),
        graph_of(
            specs,
            lambda a, b: [B.argmax(B.slice_(B.cat([a, b, a], 1), (0, 3), (len(x), n + split)), 1), B.cat([b, a], 1)],
        ),
    ]
    inputs = [x, x[:, :split]]
    if split > n:
        inputs[1] = np.tile(x, (1, -(-split // n)))[:, :split]
    inputs[1] = np.ascontiguousarray(inputs[1])
    for g in graphs:
        accepting = [name for name, family in FAMILIES.items() if family.accepts(g, CPU_DEVICE) is None]
        assert accepting
        for name in accepting:
            for schedule in FAMILIES[name].space(g, CPU_DEVICE)[:2]:
                got = run_kernel(bench, g, name, schedule, inputs)
                for one, expected in zip(got, interpret(g, inputs), strict=True):
                    np.testing.assert_array_equal(one, expected)
