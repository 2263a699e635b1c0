"""Runs a loop program as its printers mean it, point by point on NumPy, and complains where C++ would be undefined.

It raises `ProgramError` at a read of a kept element that nothing filled, of an accumulator that has not ended, of a
local out of scope, along another lane axis or outside an input, and where an output is not written exactly once.
"""

from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, product

import numpy as np

from codegen.lowering.index import Affine, Axis, Fetched, Opaque, Term
from codegen.lowering.program import Kept, Key, Path, PlacedReduction, Program
from codegen.lowering.scatters import ADD_LISTED, lists_of
from codegen.lowering.sums import identity
from codegen.lowering.value import Value
from fusion_ir.arithmetic.conversions import round_to, widen
from fusion_ir.arithmetic.fma import fma
from fusion_ir.arithmetic.philox import uniform
from fusion_ir.core.extent import shape_of
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType
from fusion_ir.ops import OPS
from fusion_ir.reference.interpreter import interpret

Point = dict[Axis, np.ndarray | int]
Found = tuple[np.ndarray, np.ndarray]  # an element and its position


class ProgramError(AssertionError):
    """The program has no meaning here; says where."""


@dataclass
class _Array:
    """Elements over `dims` and, last, lanes; which of them hold something."""

    dims: tuple[Axis, ...]
    data: np.ndarray
    filled: np.ndarray


@dataclass
class _Accumulator:
    """Partial results over the dims of a reduction's home and the lanes of its site. at: positions of an argreduce."""

    data: np.ndarray
    at: np.ndarray


@dataclass
class _Scope:
    locals: ChainMap[Value, np.ndarray] = field(default_factory=lambda: ChainMap[Value, np.ndarray]())
    arrays: ChainMap[Value, _Array] = field(default_factory=lambda: ChainMap[Value, _Array]())

    @contextmanager
    def inside(self) -> Iterator[None]:
        self.locals, self.arrays = self.locals.new_child(), self.arrays.new_child()
        yield
        self.locals, self.arrays = self.locals.parents, self.arrays.parents


def run_program(program: Program, graph: Graph, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs, each of its shape. inputs: of the graph's shapes. Raises ProgramError."""
    run = _Run(program, graph, [_memory(graph, i, x) for i, x in enumerate(inputs)], _lists(graph, inputs))
    for v, kept in program.kept.items():
        alone = not kept.scope and kept.key.path and program.is_shared(kept.key.path[:1])
        expect(not alone, f"{v} is read outside the loop that tasks share, and computed inside")
    with np.errstate(all="ignore"):
        run.nest((), {})
    for i, written in enumerate(run.written):
        expect(bool((written == 1).all()), f"out{i}: elements are written {sorted(set(written.tolist()))} times")
    return [_shaped(graph, i, x) for i, x in enumerate(run.outputs)]


def _lists(graph: Graph, inputs: Sequence[np.ndarray]) -> list[dict[int, list[int]]]:
    """By number, lists of slices by their places."""
    found: list[dict[int, list[int]]] = []
    for places, _ in lists_of(graph):
        (index,) = interpret(Graph(graph.inputs, (OutputSpec(places, (1,)),)), inputs)
        own: dict[int, list[int]] = {}
        for i, place in enumerate(index.tolist()):
            own.setdefault(place, []).append(i)
        found.append(own)
    return found


def expect(condition: bool, message: str) -> None:
    if not condition:
        raise ProgramError(message)


def _memory(graph: Graph, i: int, x: np.ndarray) -> np.ndarray:
    spec = graph.inputs[i]
    flat = np.zeros(max(spec.span, 1), x.dtype)
    flat[_offsets(spec.sizes, spec.strides)] = x
    return flat


def _shaped(graph: Graph, i: int, flat: np.ndarray) -> np.ndarray:
    output = graph.outputs[i]
    return flat[_offsets(output.node.sizes, output.strides)]


def _offsets(sizes: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """Place in memory of every element of a tensor, in elements from its first."""
    return sum((at * stride for at, stride in zip(np.indices(sizes), strides, strict=True)), np.zeros(sizes, int))


class _Run:
    def __init__(
        self, program: Program, graph: Graph, inputs: Sequence[np.ndarray], lists: Sequence[dict[int, list[int]]]
    ) -> None:
        self.program, self.inputs, self.lists = program, inputs, lists
        self.walks = {v.walked[0]: v for v in program.walks(())}
        self.outputs = [np.zeros(o.span, o.node.dtype.numpy) for o in graph.outputs]
        self.written = [np.zeros(o.span, int) for o in graph.outputs]
        self.scope = _Scope()
        self.accumulators: dict[Value, _Accumulator] = {}
        self.carries: dict[tuple[Value, Key, tuple[tuple[Axis, int], ...]], tuple[int, np.ndarray]] = {}

    # ---- the tree of loops
    def nest(self, path: Path, at: Point) -> None:
        with self.scope.inside():
            for v, kept in self.program.kept.items():
                if kept.scope == path:
                    self.declare(v, kept)
            for phase in self.program.phases(path):
                sums = [v for v in self.program.reduced_at(path, phase) if not self.program.reductions[v].is_local]
                for v in sums:
                    self.begin(v)
                for key in self.program.at(path, phase):
                    self.block(key, at)
                for loop in self.program.children(path, phase):
                    for i in range(self.count(loop.axis, at)):
                        self.nest((*path, loop), {**at, loop.axis: i})
                for v in sums:
                    self.end(v, at)

    def declare(self, v: Value, kept: Kept) -> None:
        shape = [a.extent for a in (*kept.dims, *([kept.key.lane] if kept.key.lane else []))]
        self.scope.arrays[v] = _Array(kept.dims, np.zeros(shape, v.dtype.numpy), np.zeros(shape, bool))

    def block(self, key: Key, at: Point) -> None:
        block = self.program.blocks[key]
        for point in product(*(range(self.count(a, at)) for a in key.dims)):
            here: Point = {**at, **dict(zip(key.dims, point, strict=True))}
            sums = [v for v in block.updates if self.program.reductions[v].is_local]
            for v in sums:
                expect(key.lane is not None, f"{v} begins and ends around no lanes")
                self.begin(v)
            if key.lane is None and not key.dims:
                self.statements(key, here)
            else:
                with self.scope.inside():
                    self.statements(key, {**here, **self.lanes(key.lane, here)})
            for v in sums:
                self.end(v, here)

    def count(self, axis: Axis, at: Point) -> int:
        """Iterations along an axis: fewer in the last tile, as many as slices where it walks through a list."""
        if axis in self.program.walked:
            return len(self.slices(self.walks[axis], at))
        last = self.program.last_tile(axis)
        if last is None:
            return axis.extent
        expect(last[0] in at, f"a loop over {axis} outside the loop over its tiles {last[0]}")
        return min(axis.extent, last[1] - axis.extent * int(at[last[0]]))

    def slices(self, v: Value, at: Point) -> list[int]:
        """The list of slices that a listed one is of."""
        place = evaluate(v.offset, at, self._no_place)
        return self.lists[int(str(v.attr[0]))].get(int(place), [])

    def _no_place(self, v: Value) -> np.ndarray:
        raise ProgramError(f"{v} is an index of a list's place")

    def lanes(self, lane: Axis | None, at: Point) -> Point:
        """The lanes that count."""
        return {lane: np.arange(self.count(lane, at))} if lane else {}

    def statements(self, key: Key, at: Point) -> None:
        block = self.program.blocks[key]
        for v in block.ordered():
            value = self.scan(v, key, at) if v.op == "scan" else self.compute(v, key, at)
            kept = self.program.kept.get(v)
            self.scope.locals[v] = value
            if kept and kept.key == key:
                self.fill(v, at, value)
        for v in block.updates:
            self.update(v, key, at)
        for w, repeats in block.writes:
            value = self.read(w.value, key, at)
            for point in product(*(range(a.extent) for a in repeats)):
                here: Point = {**at, **dict(zip(repeats, point, strict=True))}
                offset = np.atleast_1d(self.offset(w.offset, key, here))
                if key.lane and offset.size == 1 and key.lane in w.axes:
                    offset = np.broadcast_to(offset, np.shape(here[key.lane]))
                np.add.at(self.written[w.out], offset, 1)
                self.outputs[w.out][offset] = value

    # ---- values
    def read(self, v: Value, key: Key, at: Point) -> np.ndarray:
        """A value where block `key` needs it: as the printer spells it."""
        if v.op == "const":
            return np.asarray(v.scalar.value, v.dtype.numpy)
        kept = self.program.kept.get(v)
        if kept and v not in self.program.blocks[key].values:
            expect(v in self.scope.arrays, f"{v} is read where its array does not live")
            expect(kept.key.lane in (None, key.lane), f"{v} is kept along {kept.key.lane}, read along {key.lane}")
            array = self.scope.arrays[v]
            index = self.index(array.dims, kept.key.lane, at)
            expect(bool(array.filled[index].all()), f"{v} is read before it is filled")
            return array.data[index]
        expect(v in self.scope.locals, f"{v} is read where it is not in scope")
        value = self.scope.locals[v]
        expect(key.lane in v.deps or value.ndim == 0, f"{v} has lanes that {key} does not run along")
        return value

    def index(self, dims: Sequence[Axis], lane: Axis | None, at: Point) -> tuple[np.ndarray | int, ...]:
        return tuple(at[a] for a in (*dims, *([lane] if lane else [])))

    def fill(self, v: Value, at: Point, value: np.ndarray) -> None:
        kept = self.program.kept[v]
        expect(v in self.scope.arrays, f"{v} is filled where its array does not live")
        array = self.scope.arrays[v]
        index = self.index(array.dims, kept.key.lane, at)
        array.data[index], array.filled[index] = value, True

    def compute(self, v: Value, key: Key, at: Point) -> np.ndarray:
        if v.op == "load":
            memory, offset = self.inputs[v.tensor], np.asarray(self.offset(v.offset, key, at))
            expect(bool(((offset >= 0) & (offset < memory.size)).all()), f"{v} reads outside in{v.tensor}")
            return np.asarray(memory[offset])
        if v.op == "listed":
            return np.asarray(self.slices(v, at)[int(at[v.walked[0]])])
        if v.op == "index":
            return np.asarray(self.offset(v.offset, key, at), v.dtype.numpy)
        args = [self.read(a, key, at) for a in v.args]
        if v.op == "uniform":
            linear = np.asarray(self.offset(v.offset, key, at))
            return uniform(int(args[0]), int(args[1]), int(str(v.attr[0])), int(linear.max()) + 1)[linear]
        return apply(v.op, args, v.dtype)

    def scan(self, v: Value, key: Key, at: Point) -> np.ndarray:
        """A scan's next value: along lanes all at once, else from what the iteration before left."""
        (axis,), (operand,) = v.scanned, [self.read(a, key, at) for a in v.args]
        if axis is key.lane:
            terms = list(np.broadcast_to(operand, np.shape(at[axis])))
            return np.asarray(
                list(accumulate(terms, lambda a, b: apply(str(v.attr[0]), [a, b], v.dtype))), v.dtype.numpy
            )
        others = tuple((a, int(i)) for a, i in at.items() if a is not axis and a is not key.lane)
        i = int(at[axis])
        if i:
            before, carry = self.carries.get((v, key, others), (None, operand))
            expect(before == i - 1, f"{v} goes on at {axis} = {i} after {before}")
            operand = apply(str(v.attr[0]), [carry, operand], v.dtype)
        self.carries[v, key, others] = (i, operand)
        return operand

    def offset(self, e: Affine, key: Key, at: Point) -> np.ndarray | int:
        return evaluate(e, at, lambda v: self.read(v, key, at))

    # ---- reductions
    def begin(self, v: Value) -> None:
        r = self.program.reductions[v]
        shape = [a.extent for a in (*own_dims(r), *([r.site.lane] if r.site.lane else []))]
        listed = v.attr[0] == ADD_LISTED
        start = 0 if v.op == "argreduce" or listed else identity(str(v.attr[0]), v.dtype).value
        dtype = v.args[0].dtype if v.op == "argreduce" else v.dtype
        self.accumulators[v] = _Accumulator(np.full(shape, start, dtype.numpy), np.full(shape, -1, np.int64))

    def update(self, v: Value, key: Key, at: Point) -> None:
        expect(v in self.accumulators, f"{v} takes in elements before it begins")
        r, acc = self.program.reductions[v], self.accumulators[v]
        index = self.index(own_dims(r), r.site.lane, at)
        args = [self.read(a, key, at) for a in v.args]
        if v.op == "argreduce":
            for lane in np.ndindex(np.shape(acc.data[index])):
                spot = tuple(np.asarray(i)[lane] if np.ndim(i) else i for i in index)
                x, position = (np.broadcast_to(a, np.shape(acc.data[index]))[lane] for a in args)
                acc.data[spot], acc.at[spot] = better(v, (acc.data[spot], acc.at[spot]), (x, position))
        elif v.attr[0] == ADD_LISTED:
            acc.data[index] = apply("add", [args[0], acc.data[index]], v.dtype)
        else:
            acc.data[index] = apply(str(v.attr[0]), [*args, acc.data[index]], v.dtype)

    def end(self, v: Value, at: Point) -> None:
        r, acc = self.program.reductions[v], self.accumulators.pop(v)
        for point in product(*(range(a.extent) for a in own_dims(r))):
            here: Point = {**at, **dict(zip(own_dims(r), point, strict=True))}
            value = self.joined(v, acc.data[point], acc.at[point])
            if v in self.program.kept:
                lanes = self.lanes(r.home.lane, at)
                self.fill(v, {**here, **lanes}, value[: np.size(lanes[r.home.lane])] if r.home.lane else value)
            else:
                self.scope.locals[v] = value

    def joined(self, v: Value, data: np.ndarray, at: np.ndarray) -> np.ndarray:
        if self.program.reductions[v].home.lane:
            return at if v.op == "argreduce" else data
        pairs = list(zip(np.atleast_1d(data), np.atleast_1d(at), strict=True))
        best = pairs[0]
        for other in pairs[1:]:
            if v.op == "argreduce":
                best = better(v, best, other)
            else:
                op = "add" if v.attr[0] == "fma" else str(v.attr[0])
                best = (apply(op, [np.asarray(best[0]), np.asarray(other[0])], v.dtype), best[1])
        return np.asarray(best[1] if v.op == "argreduce" else best[0])


def own_dims(r: PlacedReduction) -> tuple[Axis, ...]:
    """The dims of a reduction's accumulators; one that is local is begun and ended for each point of its block's."""
    return () if r.is_local else r.home.dims


def apply(op: str, args: Sequence[np.ndarray], dtype: DType) -> np.ndarray:
    """Result of one op on arrays, broadcast to each other and rounded to `dtype`."""
    shape = np.broadcast_shapes(*(np.shape(a) for a in args))
    if op == "fma":
        return fma(*map(np.atleast_1d, np.broadcast_arrays(*args))).reshape(shape)
    wide = [np.atleast_1d(widen(a)) for a in args]  # some references know no scalars
    if op == "cast":
        return round_to(wide[0], dtype).reshape(shape)
    node = Node(op, (), (), shape_of(np.broadcast_shapes(*(a.shape for a in wide))), dtype)
    return round_to(np.asarray(OPS[op].reference(node, *wide)), dtype).reshape(shape)


def better(v: Value, a: Found, b: Found) -> Found:
    """The pair of two (element, position) that argmax or argmin gives; a negative position stands for no element."""
    if a[1] < 0 or b[1] < 0:
        return b if a[1] < 0 else a
    first, second = (a, b) if a[1] <= b[1] else (b, a)
    x, y = (float(p[0]) if v.args[0].dtype.is_float else int(p[0]) for p in (first, second))
    if x != x:
        return first
    beyond = y > x if v.attr[0] == "argmax" else y < x
    return second if y != y or beyond else first


def evaluate(e: Affine, at: Point, fetch: Callable[[Value], np.ndarray]) -> np.ndarray | int:
    """An index expression at a point."""

    def term(t: Term) -> np.ndarray | int:
        if isinstance(t, Axis):
            expect(t in at, f"{e} needs {t}, which has no loop here")
            return at[t]
        if isinstance(t, Fetched):
            assert isinstance(t.value, Value)
            return fetch(t.value).astype(np.int64)
        assert isinstance(t, Opaque)
        inner = evaluate(t.of, at, fetch)
        return np.clip(inner, 0, t.extent - 1) if t.is_clamp else inner // t.divisor % t.extent

    return sum((term(t) * k for t, k in e.terms), start=e.c)
