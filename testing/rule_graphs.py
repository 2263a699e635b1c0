"""Random graphs in which rules that offer alternatives match: chains of products, biases, scales, shared operands, head
splits, slices, constants, in every order of axes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, accumulate_dtype, i64
from fusion_ir.ops import make_input
from testing.random_graphs import Chooser

EXTENTS = (1, 2, 2, 3, 4, 4, 5, 6)
MOST_ELEMENTS = 600


@dataclass(frozen=True)
class Tensor:
    """A node with a label for each axis. Axes with one label have one extent, in all tensors of a graph."""

    node: Node
    labels: tuple[int, ...]

    def extent(self, label: int) -> int:
        return self.node.sizes[self.labels.index(label)]


class RuleGraphs:
    """Grows one graph. Whatever it does is linear in every input, or keeps magnitudes."""

    def __init__(self, choose: Chooser, dtype: DType) -> None:
        self.choose, self.dtype = choose, dtype
        self.inputs: list[InputSpec] = []
        self.made: list[Tensor] = []
        self._labels = 0

    def chance(self, percent: int) -> bool:
        return self.choose.below(100) < percent

    def some(self, items: Sequence[int], least: int = 0) -> list[int]:
        """Some of the items, in any order."""
        order = self.order(items)
        return order[: least + self.choose.below(len(order) - least + 1)] if len(order) >= least else order

    def order(self, items: Sequence[int]) -> list[int]:
        left = list(items)
        return [left.pop(self.choose.below(len(left))) for _ in range(len(left))]

    def label(self) -> int:
        self._labels += 1
        return self._labels

    def extent(self) -> int:
        return EXTENTS[self.choose.below(len(EXTENTS))]

    def tensor(self, extents: dict[int, int], constant: int = 50) -> Tensor:
        """An input with these axes in any order, constant with this chance in 100."""
        labels = self.order(list(extents))
        sizes = tuple(extents[label] for label in labels)
        version = f"v{len(self.inputs)}" if self.chance(constant) else None
        return Tensor(self.input(sizes, version), tuple(labels))

    def input(self, sizes: Sequence[int], version: str | None) -> Node:
        self.inputs.append(InputSpec(shape_of(sizes), self.dtype, dense_strides(sizes), 16, version))
        return make_input(len(self.inputs) - 1, self.inputs[-1])

    # ---- steps, from a tensor to another one
    def times(self, x: Tensor, y: Tensor, out: Sequence[int]) -> Tensor:
        """The product of x and y, which keeps the labels `out`."""
        a, b = (x, y) if self.chance(50) else (y, x)
        wide = accumulate_dtype(self.dtype)
        product = build.einsum(a.node, b.node, a.labels, b.labels, out, wide if self.chance(30) else None)
        return Tensor(build.cast(product, self.dtype) if self.chance(70) else product, tuple(out))

    def product(self, x: Tensor) -> Tensor:
        """The product of x and a new tensor, summed over some axes of x. The new tensor may share another axis of x,
        and has one or two of its own."""
        if not x.labels:
            return x
        summed = self.some(x.labels, 1)[:2]
        left = [label for label in x.labels if label not in summed]
        batch = self.some(left)[:1] if self.chance(30) else []
        own = {self.label(): self.extent() for _ in range(1 + self.chance(20))}
        y = self.tensor({label: x.extent(label) for label in (*summed, *batch)} | own)
        if self.chance(25):  # a factor that is a product itself
            inner = self.label()
            extents = {label: y.extent(label) for label in y.labels}
            cut = self.choose.below(len(y.labels)) if y.labels else 0
            a = self.tensor({label: extents[label] for label in y.labels[:cut]} | {inner: 3})
            b = self.tensor({inner: 3} | {label: extents[label] for label in y.labels[cut:]})
            y = self.times(a, b, self.order(y.labels))
        return self.times(x, y, self.order([*left, *own]))

    def layers(self, x: Tensor) -> Tensor:
        """Two products with constants and a bias between them, maybe by heads."""
        if not x.labels:
            return x
        (summed, *_) = self.order(x.labels)
        left = [label for label in x.labels if label != summed]
        inner = {self.label(): 4}
        y = self.times(x, self.tensor({summed: x.extent(summed)} | inner, 85), self.order([*left, *inner]))
        y = self.added(y, self.tensor(inner, 85))
        y = self.split(y) if self.chance(40) else y
        (last, *_) = self.order([label for label in y.labels if label not in left])
        own = {self.label(): self.extent()}
        kept = [label for label in y.labels if label != last]
        return self.times(y, self.tensor({last: y.extent(last)} | own, 85), self.order([*kept, *own]))

    def shared(self, x: Tensor) -> Tensor:
        """A sum or difference of two products with x, or of one with x and one with something like it."""
        if not x.labels:
            return x
        summed = self.some(x.labels, 1)[:1]
        left = [label for label in x.labels if label not in summed]
        own = {self.label(): self.extent()}
        out = self.order([*left, *own])
        extents = {label: x.extent(label) for label in summed} | own
        y = self.times(x, self.tensor(extents, 70), out)
        if self.chance(50):
            z = self.times(x, self.tensor(extents, 70), out)
        else:
            inner = {self.label(): self.extent()}
            z = self.times(
                self.tensor({label: x.extent(label) for label in left} | inner), self.tensor(inner | own), out
            )
        return self.added(y, z)

    def siblings(self, x: Tensor) -> Tensor:
        """Products with x, of which one goes on."""
        if not x.labels:
            return x
        summed = self.some(x.labels, 1)[:1]
        left = [label for label in x.labels if label not in summed]
        batch = left[:1] if self.chance(20) else []
        for _ in range(2 + self.choose.below(2)):
            own = {self.label(): self.extent() for _ in range(1 + self.chance(30))}
            y = self.tensor({label: x.extent(label) for label in (*summed, *batch)} | own, 70)
            product = build.einsum(x.node, y.node, x.labels, y.labels, out := self.order([*left, *own]))
            self.made.append(Tensor(product, tuple(out)))
        return self.made[-1]

    def repeated(self, x: Tensor) -> Tensor:
        """A product in which both repeat along an axis, or one of them."""
        if not x.labels:
            return x
        summed, batch, own = x.labels[-1], self.label(), {self.label(): self.extent()}
        y = self.tensor({summed: x.extent(summed)} | own)
        x, y = (self.along(side, batch) if self.chance(70) else side for side in (x, y))
        out = dict.fromkeys(label for label in (*x.labels, *y.labels) if label != summed)
        return self.times(x, y, self.order([*out]))

    def along(self, x: Tensor, label: int) -> Tensor:
        """Repeated along a new axis."""
        sizes = [3, *x.node.sizes]
        return Tensor(build.broadcast_in_dim(x.node, sizes, range(1, len(sizes))), (label, *x.labels))

    def parts(self, x: Tensor) -> Tensor:
        """A product with two tensors beside each other."""
        if not x.labels:
            return x
        (summed, *left) = self.order(x.labels)
        own = self.label()
        n = x.extent(summed)
        beside = own if self.chance(50) or n == 1 else summed
        first, second = (
            ({summed: n, own: 3}, {summed: n, own: 2})
            if beside == own
            else ({summed: 1, own: 3}, {summed: n - 1, own: 3})
        )
        y = self.tensor(first)
        z = self.input([second[label] for label in y.labels], None)
        return self.times(x, Tensor(build.cat([y.node, z], y.labels.index(beside)), y.labels), self.order([*left, own]))

    def summed(self, x: Tensor) -> Tensor:
        """A product spelled as the sum of a multiplication, everything repeated to all axes."""
        if not x.labels:
            return x
        (summed, *left) = self.order(x.labels)
        own = {self.label(): self.extent()}
        y = self.tensor({summed: x.extent(summed)} | own)
        sizes = [*x.node.sizes, *own.values()]
        wide = build.broadcast_in_dim(x.node, sizes, range(len(x.labels)))
        places = [len(x.labels) if label in own else x.labels.index(label) for label in y.labels]
        turned = build.permute(y.node, sorted(range(2), key=lambda k: places[k]))
        product = build.mul(wide, build.broadcast_in_dim(turned, sizes, sorted(places)))
        total = build.sum_(product, x.labels.index(summed))
        return Tensor(total, (*(label for label in x.labels if label in left), *own))

    def again(self, x: Tensor) -> Tensor:
        """The sum of a product computed twice, with its operands and its axes in different orders."""
        if not x.labels:
            return x
        (summed, *left) = self.order(x.labels)
        own = {self.label(): self.extent()}
        y = self.tensor({summed: x.extent(summed)} | own)
        out = [*left, *own]
        first, second = (
            Tensor(build.einsum(a.node, b.node, a.labels, b.labels, order), tuple(order))
            for a, b, order in ((x, y, self.order(out)), (y, x, self.order(out)))
        )
        return self.added(first, second)

    def picked(self, x: Tensor) -> Tensor:
        """x along one axis by an index: its first elements, once or twice each, or one element three times; or x three
        times over."""
        if not x.labels:
            return x
        axis = self.choose.below(len(x.labels))
        n = x.node.sizes[axis]
        few = build.iota([1 + self.choose.below(n)], dtype=i64)
        again = build.broadcast_in_dim(few, [2, *few.sizes], [1]), build.broadcast_in_dim(few, [*few.sizes, 2], [0])
        one = build.full([3], self.choose.below(n + 1), i64)
        index = (few, one, *(build.flatten(wide) for wide in again))[self.choose.below(4)]
        picked = build.cat([x.node] * 3, axis) if self.chance(30) else build.index_select(x.node, axis, index)
        return Tensor(picked, (*x.labels[:axis], self.label(), *x.labels[axis + 1 :]))

    def added(self, x: Tensor, y: Tensor) -> Tensor:
        places = [x.labels.index(label) for label in y.labels]
        ordered = sorted(range(len(places)), key=lambda k: places[k])
        turned = build.permute(y.node, ordered)
        wide = build.broadcast_in_dim(turned, x.node.sizes, sorted(places))
        add = build.sub if self.chance(25) else build.add
        return Tensor(add(x.node, wide), x.labels)

    def bias(self, x: Tensor) -> Tensor:
        labels = self.some(x.labels)
        return self.added(x, self.tensor({label: x.extent(label) for label in labels}, 80))

    def scale(self, x: Tensor) -> Tensor:
        """x, or a product of it, times 0.5, or times a number for each place along an axis."""
        x = self.product(x) if self.chance(40) else x
        if self.chance(30):
            return Tensor(build.mul(x.node, 0.5), x.labels)
        labels = self.some(x.labels)[:1]
        y = self.tensor({label: x.extent(label) for label in labels}, 70)
        places = [x.labels.index(label) for label in labels]
        return Tensor(build.mul(x.node, build.broadcast_in_dim(y.node, x.node.sizes, places)), x.labels)

    def split(self, x: Tensor) -> Tensor:
        """An axis as two, as the heads of attention."""
        for axis, n in enumerate(x.node.sizes):
            if n in (4, 6) and self.chance(60):
                labels = (*x.labels[:axis], self.label(), self.label(), *x.labels[axis + 1 :])
                sizes = [*x.node.sizes[:axis], n // 2, 2, *x.node.sizes[axis + 1 :]]
                return self.turned(Tensor(build.reshape(x.node, sizes), labels))
        return x

    def merged(self, x: Tensor) -> Tensor:
        """Two axes as one."""
        if len(x.labels) < 2:
            return x
        axis = self.choose.below(len(x.labels) - 1)
        sizes = [*x.node.sizes[:axis], prod(x.node.sizes[axis : axis + 2]), *x.node.sizes[axis + 2 :]]
        return Tensor(build.reshape(x.node, sizes), (*x.labels[:axis], self.label(), *x.labels[axis + 2 :]))

    def turned(self, x: Tensor) -> Tensor:
        order = self.order(range(len(x.labels)))
        return Tensor(build.permute(x.node, order), tuple(x.labels[d] for d in order))

    def cut(self, x: Tensor) -> Tensor:
        """A part along one axis."""
        if not x.labels:
            return x
        axis = self.choose.below(len(x.labels))
        n = x.node.sizes[axis]
        start = self.choose.below(n)
        stop = start + 1 + self.choose.below(n - start)
        step = 1 + self.chance(20)
        low = [start if a == axis else 0 for a in range(len(x.labels))]
        high = [stop if a == axis else m for a, m in enumerate(x.node.sizes)]
        part = build.slice_(x.node, low, high, [step if a == axis else 1 for a in range(len(x.labels))])
        label = x.labels[axis] if part is x.node else self.label()
        return Tensor(part, (*x.labels[:axis], label, *x.labels[axis + 1 :]))

    def cast(self, x: Tensor) -> Tensor:
        if x.node.op == "input":  # there would be nothing to cast in the widest dtype
            return x
        wide = accumulate_dtype(x.node.dtype)
        return Tensor(build.cast(x.node, self.dtype if x.node.dtype == wide else wide), x.labels)

    def kept(self, x: Tensor) -> Tensor:
        """Something that products are not seen through, with its axes in another order before or behind."""
        x = self.turned(x) if self.chance(50) else x
        x = Tensor(build.relu(x.node), x.labels)
        return self.turned(x) if self.chance(50) else x

    def grown(self) -> Graph:
        """Outputs are the last tensor and now and then one before."""
        steps: tuple[Callable[[Tensor], Tensor], ...] = (
            *(self.product,) * 6, *(self.shared,) * 2, *(self.layers,) * 2, *(self.bias,) * 2, *(self.scale,) * 2,
            *(self.split,) * 2, self.siblings, *(self.repeated,) * 2, self.parts, self.summed, self.again,
            *(self.picked,) * 3, *(self.kept,) * 2, self.merged, self.turned, self.cut, self.cast,
        )  # fmt: skip
        x = self.tensor({self.label(): self.extent() for _ in range(2 + self.chance(40))}, 20)
        for _ in range(3 + self.choose.below(6)):
            y = steps[self.choose.below(len(steps))](x)
            if y.node.elements <= MOST_ELEMENTS:
                self.made.append(y)
                x = y
        nodes = [x.node, *(t.node for t in self.made if self.chance(12))]
        nodes = [n for n in nodes if n.op != "input"] or [build.relu(x.node)]
        return Graph(tuple(self.inputs), tuple(OutputSpec(n, dense_strides(n.sizes)) for n in nodes))


def rule_graph(choose: Chooser, dtype: DType) -> Graph:
    """A graph whose products are over `dtype`. Equal choices with another dtype give this graph in that dtype."""
    return RuleGraphs(choose, dtype).grown()
