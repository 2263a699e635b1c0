"""Random graphs in which rules that offer alternatives match: chains of products, biases, scales, shared operands, head
splits, slices, constants, in every order of axes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from fusion_ir import build
from fusion_ir.dtype import DType, accumulate_dtype
from fusion_ir.extent import dense_strides, shape_of
from fusion_ir.graph import Graph, InputSpec, OutputSpec
from fusion_ir.node import Node
from fusion_ir.ops import make_input
from tests.support.random_graphs import Chooser

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
        self.inputs.append(InputSpec(shape_of(sizes), self.dtype, dense_strides(sizes), 16, version))
        return Tensor(make_input(len(self.inputs) - 1, self.inputs[-1]), tuple(labels))

    # ---- steps, from a tensor to another one
    def times(self, x: Tensor, y: Tensor, out: Sequence[int]) -> Tensor:
        """Their product, which keeps the labels `out`."""
        a, b = (x, y) if self.chance(50) else (y, x)
        wide = accumulate_dtype(self.dtype)
        product = build.einsum(a.node, b.node, a.labels, b.labels, out, wide if self.chance(30) else None)
        return Tensor(build.cast(product, self.dtype) if self.chance(70) else product, tuple(out))

    def product(self, x: Tensor) -> Tensor:
        """With a new tensor, over some axes of x; others it shares, and has one or two of its own."""
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
        if self.chance(30):
            return Tensor(build.mul(x.node, 0.5), x.labels)
        labels = self.some(x.labels)[:1]
        y = self.tensor({label: x.extent(label) for label in labels})
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
        """Something that products are not seen through."""
        return Tensor(build.relu(x.node), x.labels)

    def grown(self) -> Graph:
        """Outputs are the last tensor and now and then one before."""
        steps: tuple[Callable[[Tensor], Tensor], ...] = (
            *(self.product,) * 6, self.shared, self.shared, self.siblings, self.layers, self.layers, self.bias,
            self.bias, self.scale, self.split,
            self.split, self.merged, self.turned, self.cut, self.cast, self.kept,
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
    """A graph whose products are over `dtype`. The same choices in another dtype give the same graph in that one."""
    return RuleGraphs(choose, dtype).grown()
