"""Narrowing changes no value, whatever comes near the ends of 32 bits; 64-bit lanes stay where they are needed."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from codegen.families import FAMILIES
from codegen.families.loop_nest import lower
from codegen.lowering.index import Affine, Axis, var
from codegen.lowering.int_narrowing import narrow
from codegen.lowering.intervals import RULES
from codegen.lowering.value import COMPARISONS, Value, Values, cone
from codegen.lowering.write import Write
from fusion_ir import building as B
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DTYPES, DType, bool_, f32, i8, i32, i64, u8
from fusion_ir.ops import OPS
from scheduler.rewrites.prepare import prepare
from testing.tensors import graph_of, same_bits, spec
from tests.support.devices import CPU_DEVICE
from tests.support.kernels import narrow_lanes
from tests.support.program_runs import Point, apply, evaluate

ROW, LANE, BOUND = Axis(0, 5), Axis(1, 7), Axis(2, 3)
GRID: Point = {
    a: np.arange(a.extent).reshape([-1 if b is a else 1 for b in (ROW, LANE, BOUND)]) for a in (ROW, LANE, BOUND)
}
EDGES = (0, 1, -1, 2, 5, 1 << 30, (1 << 31) - 1, -(1 << 31), 1 << 31, (1 << 31) - 8, -(1 << 31) - 1, (1 << 63) - 1, 3)
LOADED: tuple[DType, ...] = (i64, i32, i8, u8, bool_)


def meaning(root: Value, memory: list[np.ndarray]) -> np.ndarray:
    """The value at every point of the grid, each step in the type it says."""
    found: dict[Value, np.ndarray] = {}
    for v in cone([root]):
        if v.op == "const":
            found[v] = np.full((1, 1, 1), v.scalar.value, v.dtype.numpy)
        elif v.op in ("load", "index"):
            e = np.asarray(evaluate(v.offset, GRID, lambda x: found[x]))
            e = e.reshape(e.shape or (1, 1, 1))
            found[v] = memory[v.tensor][e] if v.op == "load" else e.astype(v.dtype.numpy)
        elif v.op == "reduce":
            terms = np.broadcast_to(found[v.args[0]], [a.extent for a in GRID])
            total = terms[:, :, :1]
            for i in range(1, BOUND.extent):
                total = apply(str(v.attr[0]), [total, terms[:, :, i : i + 1]], v.dtype)
            found[v] = total
        elif v.op == "scan":
            terms = np.array(np.broadcast_to(found[v.args[0]], [a.extent for a in GRID]))
            for i in range(1, LANE.extent):
                terms[:, i : i + 1] = apply(str(v.attr[0]), [terms[:, i - 1 : i], terms[:, i : i + 1]], v.dtype)
            found[v] = terms if BOUND in v.deps else terms[:, :, :1]
        else:
            found[v] = apply(v.op, [found[a] for a in v.args], v.dtype)
    return np.broadcast_to(found[root], [ROW.extent, LANE.extent, 1 if BOUND not in root.deps else BOUND.extent])


class Trees:
    """Random trees of i64 arithmetic, with something of another type at the root."""

    def __init__(self, seed: int) -> None:
        self.rng, self.values = random.Random(seed), Values()
        self.memory = [np.array([self.rng.choice(EDGES) for _ in range(64)], np.int64).astype(t.numpy) for t in LOADED]

    def affine(self) -> Affine:
        total = Affine(self.rng.choice([0, 0, 0, 7, -3, (1 << 31) - 9, -(1 << 31)]))
        for axis in self.rng.sample([ROW, LANE, BOUND], self.rng.randint(1, 2)):
            total = total + var(axis) * self.rng.choice([1, 1, 1, 2, 1 << 28])
        return total

    def leaf(self) -> Value:
        kind = self.rng.randrange(6)
        if kind < 2:
            return self.values.index(self.affine(), i64)
        if kind == 2:
            return self.values.const(Scalar.of(self.rng.choice(EDGES), i64))
        place = var(ROW) * 8 + (var(LANE) if self.rng.random() < 0.5 else Affine())
        tensor = self.rng.randrange(len(LOADED))
        return self.values.cast(self.values.load(tensor, place, LOADED[tensor]), i64)

    def tree(self, depth: int) -> Value:
        if depth == 0 or self.rng.random() < 0.2:
            return self.leaf()
        op = self.rng.choice([*RULES, "add", "mul", "minimum", "maximum", "where"])
        arity = OPS[op].arity
        assert isinstance(arity, int)
        args = [self.tree(depth - 1) for _ in range(arity)]
        if op == "where":
            args[0] = self.compared(depth - 1)
        return self.values.make(op, args, (), i64)

    def compared(self, depth: int) -> Value:
        return self.values.make(self.rng.choice(COMPARISONS), (self.tree(depth), self.tree(depth)), (), bool_)

    def root(self) -> Value:
        kind = self.rng.randrange(6)
        if kind == 4:
            scanned = (self.rng.choice(["add", "minimum", "maximum"]), LANE)
            return self.values.make("scan", (self.tree(2),), scanned, i64, [LANE])
        if kind == 0:
            summed = (self.rng.choice(["add", "minimum", "maximum"]), BOUND)
            return self.values.make("reduce", (self.tree(2),), summed, i64)
        if kind == 1:
            return self.values.cast(self.tree(2), DTYPES[self.rng.choice(["f32", "f64", "i32", "i8", "bool", "bf16"])])
        return self.compared(2)


def written(value: Value) -> Write:
    return Write(0, var(ROW) * LANE.extent + var(LANE), value, (ROW, LANE), value.dtype.bytes)


def test_no_value_changes() -> None:
    narrowed = 0
    for seed in range(600):
        trees = Trees(seed)
        root = trees.root()
        (after,) = narrow([written(root)], [LANE])
        assert after.value.dtype == root.dtype
        assert same_bits(meaning(after.value, trees.memory), meaning(root, trees.memory)), (seed, cone([after.value]))
        wide = [v for v in cone([after.value]) if v.dtype == i64]
        narrowed += len(wide) < sum(v.dtype == i64 for v in cone([root]))
    assert narrowed > 200


def compared(x: Value, y: Value, values: Values) -> Value:
    (after,) = narrow([written(values.make("le", (x, y), (), bool_))], [LANE])
    return after.value


def test_indices_become_one() -> None:
    values = Values()
    start, step = (values.const(Scalar.of(c, i64)) for c in (4, 1))
    scaled = values.make("mul", (step, values.index(var(LANE), i64)), (), i64)
    after = compared(values.make("add", (start, scaled), (), i64), values.index(var(ROW), i64), values)
    assert [(v.op, v.dtype, v.offset) for v in after.args] == [
        ("index", i32, var(LANE) + 4), ("index", i32, var(ROW)),
    ]  # fmt: skip


def test_lanes_count_by_one() -> None:
    """An index of every second lane has no instruction of its own: the product stays one."""
    values = Values()
    two = values.const(Scalar.of(2, i64))
    x = values.make("mul", (two, values.index(var(LANE), i64)), (), i64)
    assert [v.op for v in compared(x, two, values).args] == ["mul", "const"]


def test_a_label_comes_near_the_classes() -> None:
    values = Values()
    label = values.load(0, var(ROW), i64)
    after = compared(values.index(var(LANE), i64), label, values)
    cast = after.args[1]
    assert (cast.op, cast.dtype, cast.args[0].op, cast.args[0].args[0].op) == ("cast", i32, "minimum", "maximum")
    assert [c.args[1].scalar.value for c in (cast.args[0], cast.args[0].args[0])] == [LANE.extent, -1]


@pytest.mark.parametrize(
    "x",
    [
        lambda v: v.index(var(LANE) * (1 << 30), i64),  # needs 33 bits
        lambda v: v.index(var(LANE) + ((1 << 31) - LANE.extent), i64),  # fits, but not what lies next to it
    ],
)
def test_what_needs_more_bits_stays(x: Callable[[Values], Value]) -> None:
    values = Values()
    after = compared(x(values), values.load(0, var(ROW), i64), values)
    assert {a.dtype for a in after.args} == {i64}


def test_a_label_of_every_lane_stays() -> None:
    """Bringing it into range would cost more 64-bit lanes than comparing them does."""
    values = Values()
    after = compared(values.index(var(ROW), i64), values.load(0, var(LANE), i64), values)
    assert {a.dtype for a in after.args} == {i64}


def test_counting_in_32_bits() -> None:
    values = Values()
    flag = values.cast(values.load(4, var(LANE) * 3 + var(BOUND), bool_), i64)
    total = values.make("reduce", (flag,), ("add", BOUND), i64)
    running = values.make("scan", (flag,), ("add", LANE), i64, [LANE])
    for v in (total, running):
        (after,) = narrow([written(v)], [LANE])
        assert (after.value.op, after.value.args[0].op, after.value.args[0].dtype) == ("cast", v.op, i32)


def causal(x: Node) -> Node:
    rows, columns = x.sizes[-2:]
    mask = B.le(B.iota([rows, columns], 1), B.iota([rows, columns], 0))
    return B.softmax(B.where(mask, B.mul(x, 0.125), -float("inf")))


def one_hot(labels: Node, x: Node) -> Node:
    return B.where(B.eq(B.iota(x.sizes, 1), B.unsqueeze(labels, 1)), x, 0.0)


GOLDENS: dict[str, Graph] = {
    "causal_softmax": graph_of([spec((2, 64, 96), f32)], causal),
    "one_hot": graph_of([spec((64,), i64), spec((64, 96), f32)], one_hot),
    # Rows start at whole counters of the generator.
    "dropout": graph_of([spec((64, 96), f32), spec((), i64)], lambda x, seed: B.dropout(x, 0.1, seed, 0)[0]),
}


@pytest.mark.parametrize("name", GOLDENS)
def test_cpp(name: str, golden: Callable[[str, str], None]) -> None:
    graph = prepare(GOLDENS[name]).graph
    family = FAMILIES["normalization" if name == "causal_softmax" else "pointwise"]
    golden(f"{name}.cpp", family.emit(graph, narrow_lanes(family, graph), CPU_DEVICE).source)


@pytest.mark.parametrize("name", ["causal_softmax", "one_hot"])
def test_loop_program(name: str, golden: Callable[[str, str], None]) -> None:
    graph = prepare(GOLDENS[name]).graph
    golden(f"{name}.loops", str(lower(graph, 16, 64, 1024, least_tasks=16, keep_bytes=64 << 10)))


@pytest.mark.parametrize(("columns", "whole"), [(96, True), (100, True), (98, False), (97, False)])
def test_random_numbers_by_whole_counters(columns: int, whole: bool) -> None:
    """Rows of their own in one tensor of them."""
    graph = graph_of(
        [spec((64, columns), f32, (columns + 1, 1)), spec((), i64)],
        lambda x, s: B.mul(x, B.uniform(x.sizes, s, 0)),
    )
    family = FAMILIES["pointwise"]
    source = family.emit(graph, narrow_lanes(family, graph), CPU_DEVICE).source
    assert ("uniform_run<32>" in source, "uniform_<32>" in source) == (whole, not whole)


def test_random_numbers_from_the_middle_of_a_counter() -> None:
    """Whole rows are one run of lanes, but it starts at element 1 of a row."""
    graph = graph_of([spec((), i64)], lambda s: B.exp(B.slice_(B.uniform((8, 100), s, 0), [0, 1], [8, 97])))
    family = FAMILIES["pointwise"]
    assert "uniform_run" not in family.emit(graph, family.space(graph, CPU_DEVICE)[0], CPU_DEVICE).source
