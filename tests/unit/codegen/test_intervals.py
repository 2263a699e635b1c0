"""Ranges hold for every operand in theirs, and say something where they can."""

import random
from itertools import product

import numpy as np
import pytest

from codegen.lowering.index import Affine, Axis, var
from codegen.lowering.intervals import RULES, Intervals, Range, whole, within
from codegen.lowering.value import Values
from fusion_ir.core.extent import shape_of
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DTYPES, f32, i8, i32, i64, u8
from fusion_ir.ops import OPS


def exact_result(op: str, operands: list[tuple[int, ...]]) -> np.ndarray:
    """The op's reference over every combination, in i64."""
    arrays = [np.array(column) for column in zip(*product(*operands), strict=True)]
    if op == "where":
        arrays[0] = arrays[0] != 0
    node = Node(op, (), (), shape_of(arrays[0].shape), i64)
    return np.asarray(OPS[op].reference(node, *arrays))


def drawn(rng: random.Random, op: str, position: int) -> Range:
    if op == "where" and position == 0:
        return rng.choice([(0, 0), (0, 1), (1, 1)])
    low = rng.randint(-12, 12)
    return low, low + rng.choice([0, 1, 3, 9])


@pytest.mark.parametrize("op", RULES)
def test_results_stay_within_the_range(op: str) -> None:
    rng, arity, said, tight = random.Random(op), OPS[op].arity, 0, 0
    assert isinstance(arity, int)
    for _ in range(300):
        operands = [drawn(rng, op, i) for i in range(arity)]
        found = RULES[op](operands)
        if found is None:
            continue
        got = exact_result(op, [tuple(range(low, high + 1)) for low, high in operands])
        assert found[0] <= got.min() and got.max() <= found[1], (operands, found)
        said, tight = said + 1, tight + (found == (got.min(), got.max()))
    assert said >= 50 and tight > 0


@pytest.mark.parametrize("op", ["floordiv", "div", "remainder", "fmod"])
def test_nothing_is_said_of_divisors_that_may_be_zero(op: str) -> None:
    assert RULES[op]([(0, 9), (0, 3)]) is None
    assert RULES[op]([(0, 9), (-2, -1)]) is None


def test_what_wraps_may_be_anything() -> None:
    values, ranges = Values(), Intervals()
    byte = values.load(0, var(Axis(0, 10)), i8)
    assert ranges.of(byte) == (-128, 127)
    assert ranges.of(values.make("neg", (byte,), (), i8)) == (-128, 127)  # of -128 there is no opposite
    wide = values.cast(byte, i64)
    assert ranges.of(values.make("neg", (wide,), (), i64)) == (-127, 128)
    assert ranges.of(values.make("bitwise_not", (values.load(0, Affine(), u8),), (), u8)) == (0, 255)


def test_casts_keep_what_fits() -> None:
    values, ranges = Values(), Intervals()
    index = values.index(var(Axis(0, 100)) * 3 + 5, i64)
    assert ranges.of(index) == (5, 302)
    assert ranges.of(values.cast(index, i32)) == (5, 302)
    assert ranges.of(values.cast(index, i8)) == whole(i8)
    assert ranges.of(values.cast(values.load(0, Affine(), DTYPES["bool"]), i64)) == (0, 1)
    assert ranges.of(values.cast(values.load(0, Affine(), f32), i64)) == whole(i64)


def test_sums_count_their_terms_and_their_parts() -> None:
    values, ranges = Values(), Intervals()
    i, k = Axis(0, 7), Axis(1, 10)
    e = values.index(var(i) + var(k) * 2 + 3, i64)
    assert ranges.of(values.make("reduce", (e,), ("add", k), i64)) == (0, 270)
    assert ranges.of(values.make("reduce", (e,), ("maximum", k), i64)) == (3, 27)
    assert ranges.of(values.make("reduce", (e,), ("mul", k), i64)) == whole(i64)


def test_constants_and_types() -> None:
    assert Intervals().of(Values().const(Scalar.of(-7, i64))) == (-7, -7)
    assert [whole(DTYPES[name]) for name in ("bool", "u8", "i8")] == [(0, 1), (0, 255), (-128, 127)]
    assert within((0, 3), (0, 3)) and not within((0, 4), (0, 3)) and not within((-1, 3), (0, 3))
