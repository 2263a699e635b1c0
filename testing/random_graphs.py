"""Random fusion graphs: odd sizes, strides, views of views, axes of extent 1 and 0, every kind of op.

Choices come from a `Chooser`, so that one generator serves seeds (many kernels compiled together) and hypothesis
(shrinking).
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Protocol, TypeVar

from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DTYPES, DType, bf16, bool_, f16, f32, f64, i8, i32, i64, u8
from fusion_ir.ops import OPS, OpKind, RuleError, make, make_input

T = TypeVar("T")


class Chooser(Protocol):
    def below(self, n: int) -> int: ...


class Seeded:
    """Choices from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, n: int) -> int:
        return self._random.randrange(n)


EXTENTS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 17, 31, 32, 33, 48, 64, 65)
DTYPE_CHOICES = (
    f32,
    f32,
    f32,
    bf16,
    bf16,
    f16,
    f64,
    i32,
    i64,
    i8,
    u8,
    bool_,
    DTYPES["i16"],
    DTYPES["f8e4m3"],
    DTYPES["f8e5m2"],
)
POINTWISE = tuple(op for op in OPS.values() if op.kind is OpKind.POINTWISE and op.name != "cast")
EXACT = tuple(op for op in POINTWISE if op.ulps == 0)


@dataclass
class Maker:
    """Grows one graph."""

    choose: Chooser
    exact: bool
    max_elements: int = 6000
    inputs: list[InputSpec] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    def pick(self, items: Sequence[T]) -> T:
        return items[self.choose.below(len(items))]

    def chance(self, percent: int) -> bool:
        return self.choose.below(100) < percent

    def operand(self, fitting: Callable[[Node], bool] = lambda n: True) -> Node | None:
        """A node to build on, mostly one of the latest, so that graphs grow deep."""
        nodes = [n for n in self.nodes if fitting(n)]
        if not nodes:
            return None
        return self.pick(nodes[-3:] if self.chance(70) else nodes)

    # ---- inputs
    def input(self, sizes: Sequence[int], dtype: DType) -> Node:
        strides = list(dense_strides(sizes))
        layout = self.choose.below(6)
        if layout == 0 and len(sizes) > 1:  # axes stored in another order
            order = list(range(len(sizes)))
            for i in range(len(order) - 1):
                j = i + self.choose.below(len(order) - i)
                order[i], order[j] = order[j], order[i]
            stored = dense_strides([sizes[a] for a in order])
            for position, a in enumerate(order):
                strides[a] = stored[position]
        elif layout == 1 and sizes:  # elements with gaps
            gap = 1 + self.choose.below(3)
            strides = [s * gap for s in strides]
        elif layout == 2 and sizes:  # one axis broadcast in memory
            strides[self.choose.below(len(sizes))] = 0
        alignment = self.pick((16, 16, 16, 64, dtype.bytes, 2 * dtype.bytes))
        spec = InputSpec(shape_of(sizes), dtype, tuple(strides), max(alignment, dtype.bytes))
        self.inputs.append(spec)
        return make_input(len(self.inputs) - 1, spec)

    def sizes(self, rank: int | None = None) -> tuple[int, ...]:
        rank = self.choose.below(5) if rank is None else rank
        sizes = [self.pick(EXTENTS) for _ in range(rank)]
        while prod(sizes) > self.max_elements:
            sizes[max(range(rank), key=lambda i: sizes[i])] //= 2
        if rank and self.chance(3):
            sizes[self.choose.below(rank)] = 0
        return tuple(sizes)

    # ---- operands
    def of_shape(self, sizes: tuple[int, ...], dtype: DType) -> Node:
        """A node of this shape and dtype: an existing one, cast or broadcast if need be, a constant, or a new input."""
        fitting = [n for n in self.nodes if n.sizes == sizes]
        if fitting and self.chance(75):
            return self.cast(self.pick(fitting), dtype)
        if self.chance(30):
            return make("full", (), {"shape": shape_of(sizes), "value": self.constant(dtype)})
        if sizes and self.chance(40):  # a smaller tensor, broadcast
            kept = [d for d in range(len(sizes)) if self.chance(60)]
            small = self.input([1 if self.chance(20) else sizes[d] for d in kept], dtype)
            self.nodes.append(small)
            return make("broadcast_in_dim", (small,), {"shape": shape_of(sizes), "dims": tuple(kept)})
        node = self.input(sizes, dtype)
        self.nodes.append(node)
        return node

    def constant(self, dtype: DType) -> Scalar:
        if dtype.kind == "bool":
            return Scalar.of(self.choose.below(2), dtype)
        if dtype.is_integer:
            return Scalar.of(self.choose.below(9) - (4 if dtype.kind == "int" else 0), dtype)
        return Scalar.of(self.pick((0.0, -0.0, 1.0, -1.5, 0.3, 3.0, float("inf"), float("nan"), 1e-30)), dtype)

    def cast(self, node: Node, dtype: DType) -> Node:
        return node if node.dtype == dtype else make("cast", (node,), {"dtype": dtype})

    # ---- ops
    def step(self, kinds: Sequence[Callable[[], Node]]) -> None:
        try:
            node = self.pick(kinds)()
        except RuleError:
            return
        if node.elements <= 4 * self.max_elements and node.rank <= 6:
            self.nodes.append(node)

    def pointwise(self) -> Node:
        op = self.pick(EXACT if self.exact else POINTWISE)
        x = self.operand() or self.nodes[0]
        arity = op.arity if isinstance(op.arity, int) else op.arity[0]
        if op.name == "where":
            dtype = self.pick(DTYPE_CHOICES)
            return make("where", (self.cast(x, bool_), self.of_shape(x.sizes, dtype), self.of_shape(x.sizes, dtype)))
        for dtype in (x.dtype, f32, i32, bool_):  # the first that the op's rule takes
            try:
                return make(op.name, (self.cast(x, dtype), *(self.of_shape(x.sizes, dtype) for _ in range(arity - 1))))
            except RuleError:
                continue
        raise RuleError(op.name)

    def convert(self) -> Node:
        return self.cast((self.operand() or self.nodes[0]), self.pick(DTYPE_CHOICES))

    def view(self) -> Node:
        x = self.operand() or self.nodes[0]
        which = self.choose.below(9)
        if which == 0:
            return make("reshape", (x,), {"shape": shape_of(self.factorised(x.elements))})
        if which == 1:
            dims = list(range(x.rank))
            for i in range(len(dims) - 1):
                j = i + self.choose.below(len(dims) - i)
                dims[i], dims[j] = dims[j], dims[i]
            return make("permute", (x,), {"dims": tuple(dims)})
        if which == 2:
            bounds = [(self.choose.below(n + 1), self.choose.below(n + 1), 1 + self.choose.below(3)) for n in x.sizes]
            start, stop = tuple(min(a, b) for a, b, _ in bounds), tuple(max(a, b) for a, b, _ in bounds)
            return make("slice", (x,), {"start": start, "stop": stop, "step": tuple(s for *_, s in bounds)})
        if which == 3:
            low = tuple(self.choose.below(5) - 1 if n > 2 else self.choose.below(3) for n in x.sizes)
            high = tuple(self.choose.below(5) - 1 if n > 2 else self.choose.below(3) for n in x.sizes)
            return make("pad", (x,), {"low": low, "high": high, "value": self.constant(x.dtype)})
        if which == 4 and x.rank:
            axis = self.choose.below(x.rank)
            others = [n for n in self.nodes if n.rank == x.rank and n.dtype == x.dtype]
            fitting = [
                n
                for n in others
                if all(i == axis or a == b for i, (a, b) in enumerate(zip(n.sizes, x.sizes, strict=True)))
            ]
            return make("cat", tuple(self.pick(fitting) for _ in range(2 + self.choose.below(2))), {"axis": axis})
        if which == 5:
            at = self.choose.below(x.rank + 1)
            shape = (*x.sizes[:at], self.pick((1, 2, 3, 5)), *x.sizes[at:])
            dims = tuple(d if d < at else d + 1 for d in range(x.rank))
            return make("broadcast_in_dim", (x,), {"shape": shape_of(shape), "dims": dims})
        if which == 6:
            axes = tuple(d for d, n in enumerate(x.sizes) if n == 1 and self.chance(70))
            return make("squeeze", (x,), {"axes": axes})
        if which == 7:
            shape = tuple(self.pick((2, 3, 5)) if n == 1 else n for n in x.sizes)
            return make("expand", (x,), {"shape": shape_of(shape)})
        if not x.rank or x.dtype.kind == "bool":
            raise RuleError("no iota here")
        attrs = {"shape": x.shape, "axis": self.choose.below(x.rank)}
        start, step = (Scalar.of(self.choose.below(4), x.dtype) for _ in range(2))
        return make("iota", (), {**attrs, "start": start, "step": step})

    def factorised(self, n: int) -> tuple[int, ...]:
        """A random shape of n elements."""
        if n == 0:
            return self.pick(((0,), (0, 3), (2, 0)))
        shape: list[int] = []
        while n > 1 and len(shape) < 4:
            factors = [f for f in range(2, n + 1) if n % f == 0]
            shape.append(self.pick(factors[: max(1, len(factors) // 2 + 1)]))
            n //= shape[-1]
        return tuple(shape + ([n] if n > 1 else [])) or self.pick(((), (1,), (1, 1)))

    def contraction(self, least: int = 1, most: int = 16) -> Node:
        dtype = self.pick((f32, bf16, f16, f64, i32))
        k = least + self.choose.below(most - least + 1)
        m, n, batch = (self.pick((1, 2, 3, 5, 8, 17)) for _ in range(3))
        a = self.of_shape((batch, m, k) if self.chance(50) else (k, m, batch), dtype)
        b = self.of_shape((n, batch, k) if self.chance(50) else (batch, k, n), dtype)
        a_axes = (0, 1, -1, 2) if a.sizes == (batch, m, k) else (2, 1, -1, 0)
        b_axes = (1, -1, 0, 2) if b.sizes == (n, batch, k) else (0, -1, 2, 1)
        acc = f64 if dtype == f64 else f32 if dtype.is_float else i64
        out = dtype if dtype.is_float else i64
        return make(
            "contract", (a, b), {"a_axes": a_axes, "b_axes": b_axes, "reduced": 1, "acc": acc, "out_dtype": out}
        )

    def reduction(self) -> Node:
        x = self.operand(lambda n: n.rank > 0) or self.of_shape((5, 3), f32)
        op = self.pick([o for o in OPS.values() if o.kind is OpKind.REDUCTION])
        if op.name in ("any", "all"):
            x = self.cast(x, bool_)
        elif op.name in ("mean", "var") and not x.dtype.is_float:
            x = self.cast(x, f32)
        if "axis" in op.attrs:
            return make(op.name, (x,), {"axis": self.choose.below(x.rank)})
        attrs = {"axes": tuple(d for d in range(x.rank) if self.chance(50))}
        return make(op.name, (x,), attrs | ({"correction": self.choose.below(2)} if op.name == "var" else {}))

    def scan(self) -> Node:
        x = self.operand(lambda n: n.rank > 0) or self.of_shape((5, 3), f32)
        return make("cumsum", (x,), {"axis": self.choose.below(x.rank)})

    def gather(self) -> Node:
        x = self.operand(lambda n: n.rank > 0 and n.elements > 0) or self.of_shape((5, 3), f32)
        axis = self.choose.below(x.rank)
        if self.chance(40):
            return make("index_select", (x, self.index((self.pick((1, 3, 8)),))), {"axis": axis})
        length = self.pick((1, 2, 5))
        sizes = tuple(length if d == axis else n for d, n in enumerate(x.sizes))
        return make(self.pick(("gather", "take_along_axis")), (x, self.index(sizes)), {"axis": axis})

    def scatter(self) -> Node:
        """Slices of a tensor added up; now and then of products with gathered ones, as messages along edges are."""
        x = self.operand(lambda n: n.rank > 0) or self.of_shape((5, 3), f32)
        axis, extent = self.choose.below(x.rank), self.pick((1, 2, 6, 11))
        if x.sizes[axis] and self.chance(40):
            picked = make("index_select", (x, self.index(x.sizes[axis : axis + 1])), {"axis": axis})
            x = make("mul", (picked, x), {}) if x.dtype.kind != "bool" else picked
        return make("scatter_sum", (x, self.index(x.sizes[axis : axis + 1])), {"axis": axis, "extent": extent})

    def index(self, sizes: tuple[int, ...]) -> Node:
        node = self.input(sizes, self.pick((i32, i64)))
        self.nodes.append(node)
        return node

    def random_numbers(self) -> Node:
        seed, offset = (
            make("full", (), {"shape": (), "value": Scalar.of(self.choose.below(1000), i64)}) for _ in range(2)
        )
        return make("uniform", (seed, offset), {"shape": shape_of(self.sizes()), "stream": self.choose.below(3)})

    def graph(self, outputs: int) -> Graph:
        """The last node and others, as outputs; now and then with an input or a repetition among them."""
        computed = [n for n in self.nodes if n.op != "input"] or self.nodes
        chosen = [computed[-1], *(self.pick(computed) for _ in range(outputs - 1))]
        if self.chance(5):
            chosen.append(self.pick(self.nodes))
        return Graph(tuple(self.inputs), tuple(OutputSpec(n, dense_strides(n.sizes)) for n in chosen))


def pointwise_graph(choose: Chooser, *, exact: bool = True, steps: int = 9, max_elements: int = 6000) -> Graph:
    """A graph that family `pointwise` accepts: pointwise and view ops, random numbers, small contractions."""
    m = Maker(choose, exact, max_elements)
    m.nodes.append(m.input(m.sizes(1 + choose.below(4)), m.pick(DTYPE_CHOICES)))
    kinds = [m.pointwise] * 8 + [m.view] * 9 + [m.convert] * 2 + [m.contraction, m.random_numbers]
    for _ in range(4 + choose.below(steps)):
        m.step(kinds)
    return m.graph(1 + choose.below(3))


def any_graph(choose: Chooser, *, steps: int = 8) -> Graph:
    """A graph of every kind of op."""
    m = Maker(choose, exact=False, max_elements=1500)
    m.nodes.append(m.input(m.sizes(1 + choose.below(3)), m.pick(DTYPE_CHOICES)))
    kinds = (
        [m.pointwise] * 6 + [m.view] * 5 + [m.convert] * 2 + [m.reduction] * 4 + [m.gather, m.scan, m.random_numbers]
    )
    kinds += [m.contraction, lambda: m.contraction(17, 40), m.scatter]
    for _ in range(4 + choose.below(steps)):
        m.step(kinds)
    return m.graph(1 + choose.below(2))


def independent_graph(choose: Chooser, *, nodes: int) -> Graph:
    """About so many nodes in small parts that have nothing in common, each of a shape of its own: products, softmaxes,
    sums, transposes, chains of pointwise ops."""
    m = Maker(choose, exact=False, max_elements=1500)
    dtypes = m.pick(((f32,), (f32,), (bf16,), (f64,), (f32, f16, bf16, f64)))
    outputs: list[Node] = []

    def part() -> Node:
        dtype = m.pick(dtypes)
        rows, inner, columns = 3 + choose.below(30), 2 + choose.below(40), 3 + choose.below(30)
        x = m.input((rows, inner), dtype)
        match choose.below(6):
            case 0 | 1 | 2:
                return build.matmul(x, m.input((inner, columns), dtype))
            case 3:
                return build.softmax(x, choose.below(2))
            case 4:
                return build.sum_(x, choose.below(2))
            case _:
                return build.permute(x, (1, 0))

    while len(outputs) == 0 or len(Graph(tuple(m.inputs), _outputs(outputs)).nodes) < nodes:
        made = part()
        for _ in range(choose.below(3)):
            made = m.pick((build.relu, build.tanh, build.neg, build.exp))(made)
        outputs.append(made)
    return Graph(tuple(m.inputs), _outputs(outputs))


def _outputs(nodes: Sequence[Node]) -> tuple[OutputSpec, ...]:
    return tuple(OutputSpec(n, dense_strides(n.sizes)) for n in nodes)


def whole_graph(choose: Chooser, *, nodes: int) -> Graph:
    """A graph of every kind of op with about so many nodes: whatever nothing else reads is an output."""
    m = Maker(choose, exact=False, max_elements=1500)
    m.nodes.append(m.input(m.sizes(1 + choose.below(3)), m.pick(DTYPE_CHOICES)))
    kinds = [m.pointwise] * 8 + [m.view] * 4 + [m.convert] * 2 + [m.reduction] * 3 + [m.contraction]
    while len(m.nodes) < nodes:
        m.step(kinds)
    read = {a for n in m.nodes for a in n.args}
    leaves = [n for n in dict.fromkeys(m.nodes) if n not in read and n.op != "input"] or m.nodes[-1:]
    return Graph(tuple(m.inputs), tuple(OutputSpec(n, dense_strides(n.sizes)) for n in leaves))
