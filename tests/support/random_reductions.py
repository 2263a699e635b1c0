"""Random graphs around reductions: normalizations, losses, attention and gradients, as frameworks send them.

A `Grower` keeps tensors of a few shapes and adds moves to them, at odd sizes and between views of every kind; moves
that spread a result over its operand again make a graph one for family `normalization`.
"""

from collections.abc import Sequence
from math import prod

from fusion_ir import building as B
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, bool_, f16, f32, f64, i8, i32, i64
from fusion_ir.ops import RuleError, make
from testing.random_graphs import Chooser, Maker

# Below, at and beyond vector widths; 1 and primes.
EXTENTS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 17, 24, 31, 32, 33, 48, 64, 65, 100, 127, 130)
FLOATS = (f32, f32, f32, f32, bf16, bf16, f16, f64)
NUMBERS = (*FLOATS, i32, i64, i8)
REDUCED_FLOATS = ("sum", "sum", "sum", "mean", "mean", "var", "var", "max", "max", "min", "prod")
REDUCED_OTHERS = ("sum", "max", "min", "any", "all")
LONG = (16385, 20000, 33000, 70001)  # elements of a row that no kept array of 64 KiB holds
MAX_FACTORS = 32  # of more, partial products over- and underflow, in another order others


class Grower(Maker):
    """Adds the moves of normalizations, losses and attention to a `Maker`."""

    # ---- tensors
    def tensor(self) -> Node:
        """The first input: rank 1 to 4; now and then a few rows too long to keep."""
        if self.max_elements >= 6000 and self.chance(4):
            sizes: list[int] = [self.pick((1, 2, 3)), self.pick(LONG)]
            if self.chance(30):
                sizes = [*sizes[::-1]]
        else:
            sizes = [self.pick(EXTENTS) for _ in range(self.pick((1, 2, 2, 2, 3, 3, 4)))]
            while prod(sizes) > self.max_elements:
                sizes[max(range(len(sizes)), key=lambda d: sizes[d])] //= 2
        return self.keep(self.input(sizes, self.pick(NUMBERS if self.chance(20) else FLOATS)))

    def keep(self, node: Node) -> Node:
        self.nodes.append(node)
        return node

    def shuffled(self, items: Sequence[int]) -> list[int]:
        rest = list(items)
        return [rest.pop(self.choose.below(len(rest))) for _ in items]

    def float_operand(self) -> Node:
        x = self.operand(lambda n: n.rank > 0 and n.elements > 1) or self.nodes[0]
        return x if x.dtype.is_float else self.cast(x, f32)

    def axes(self, x: Node) -> tuple[int, ...]:
        """Inner, outer, middle, mixed or all: of extent above 1 where there is one."""
        rank = x.rank
        kind = self.choose.below(10)
        if kind < 3:
            return (rank - 1,)
        if kind < 5:
            return (0,)
        if kind < 6:
            return tuple(range(rank))
        if kind < 7:
            return tuple(range(self.choose.below(rank), rank))
        if kind < 8:
            return tuple(range(1 + self.choose.below(rank)))
        return tuple(d for d in range(rank) if self.chance(50)) or (self.choose.below(rank),)

    # ---- moves: reductions
    def reduced(self, x: Node, axes: Sequence[int]) -> Node:
        """One random reduction that keeps its axes with extent 1, so that the result broadcasts."""
        if not x.dtype.is_float or self.chance(10):
            op = self.pick(REDUCED_OTHERS if x.dtype.kind != "bool" else ("sum", "any", "all"))
        else:
            op = self.pick(REDUCED_FLOATS)
        if op in ("any", "all"):
            x = B.gt(x, 0.5) if x.dtype.is_float else self.cast(x, bool_)
        if op == "prod" and prod(x.sizes[d] for d in axes) > MAX_FACTORS:
            op = "sum"
        attrs = {"correction": self.choose.below(2)} if op == "var" else {}
        result = make(op, (x,), {"axes": tuple(sorted(axes)), **attrs})
        sizes = [1 if d in axes else n for d, n in enumerate(x.sizes)]
        return B.broadcast_in_dim(result, sizes, [d for d in range(x.rank) if d not in axes])

    def reduce(self) -> Node:
        """A reduction of some tensor, mostly squeezed."""
        x = self.operand(lambda n: n.rank > 0) or self.nodes[0]
        axes = self.axes(x)
        result = self.reduced(x, axes)
        return result if self.chance(30) else B.squeeze(result, axes)

    def arg(self) -> Node:
        x = self.operand(lambda n: n.rank > 0 and n.dtype.kind != "bool") or self.nodes[0]
        return make(self.pick(("argmax", "argmin")), (x,), {"axis": self.choose.below(x.rank)})

    def spread(self) -> Node:
        """x combined with a reduction of itself or of another tensor of its shape: over other axes each time."""
        x = self.float_operand()
        source = x
        others = [n for n in self.nodes if n.sizes == x.sizes and n.dtype.is_float]
        if others and self.chance(30):
            source = self.pick(others)
        r = self.cast(self.reduced(source, self.axes(x)), x.dtype)
        return self.combined(x, r)

    def combined(self, x: Node, r: Node) -> Node:
        match self.choose.below(6):
            case 0:
                return B.add(x, r)
            case 1:
                return B.mul(x, r)
            case 2:
                return B.div(x, B.add(B.abs_(r), 1.0))
            case 3:
                return B.maximum(x, r)
            case 4:
                return B.where(B.gt(x, r), x, B.mul(r, 0.5))
            case _:
                return B.sub(x, r)

    def composite(self) -> Node:
        x = self.float_operand()
        axis = x.rank - 1 if self.chance(60) else self.choose.below(x.rank)
        match self.choose.below(7):
            case 0:
                return B.softmax(x, axis)
            case 1:
                return B.log_softmax(x, axis)
            case 2:
                axes = self.axes(x)
                if axes == (x.rank - 1,):
                    weight = self.of_shape(x.sizes[-1:], x.dtype) if self.chance(60) else None
                    return B.layer_norm(x, -1, weight, self.of_shape(x.sizes[-1:], f32) if self.chance(40) else None)
                return B.layer_norm(x, axes)
            case 3:
                return B.rms_norm(x, self.axes(x))
            case 4:
                return B.logsumexp(x, self.axes(x), keepdims=self.chance(40))
            case 5:
                return B.softmax(B.tril(x) if x.rank > 1 else x, axis)  # a causal mask by iota
            case _:
                return B.std(x, self.axes(x), 0, keepdims=self.chance(60))

    def batch_norm(self) -> Node:
        """Statistics over all axes but one, with a scale per channel."""
        x = self.float_operand()
        channel = min(1, x.rank - 1)
        axes = [d for d in range(x.rank) if d != channel]
        if not axes:
            raise RuleError("one axis only")
        inner = self.cast(x, f64 if x.dtype == f64 else f32)
        mean = B.mean(inner, axes, keepdims=True)
        scale = B.rsqrt(B.add(B.var(inner, axes, 0, keepdims=True), 1e-5))
        self.keep(B.squeeze(mean, axes))
        y = B.mul(B.sub(inner, mean), scale)
        if self.chance(60):
            weight = self.of_shape((x.sizes[channel],), f32)
            y = B.mul(y, B.broadcast_in_dim(weight, x.sizes, [channel]))
        return self.cast(y, x.dtype)

    def group_norm(self) -> Node:
        """Digits of an axis and all behind it: normalized in another shape, and back."""
        x = self.float_operand()
        at = self.choose.below(x.rank)
        divisors = [d for d in range(1, x.sizes[at] + 1) if x.sizes[at] % d == 0]
        groups = self.pick(divisors)
        shape = (*x.sizes[:at], groups, prod(x.sizes[at:]) // groups)
        flat = B.reshape(x, shape)
        axes = (at + 1,) if self.chance(75) else (at,)
        y = B.layer_norm(flat, axes) if self.chance(60) else self.combined(flat, self.reduced(flat, axes))
        return B.reshape(y, x.sizes)

    def layer_norm_gradient(self) -> Node:
        """Gradient of a layer norm in x, by sums along the last axis. Where x has other axes, the weight's gradient is
        kept, too, and half of the time the bias's: sums along these axes."""
        x = self.float_operand()
        dy = self.of_shape(x.sizes, x.dtype)
        x, dy = self.cast(x, f32), self.cast(dy, f32)
        mean = B.mean(x, [-1], keepdims=True)
        r = B.rsqrt(B.add(B.var(x, [-1], 0, keepdims=True), 1e-5))
        hat = B.mul(B.sub(x, mean), r)
        inner = B.add(B.mean(dy, [-1], keepdims=True), B.mul(hat, B.mean(B.mul(dy, hat), [-1], keepdims=True)))
        if x.rank > 1:
            outer = list(range(x.rank - 1))
            self.keep(B.sum_(B.mul(dy, hat), outer))
            if self.chance(50):
                self.keep(B.sum_(dy, outer))
        return B.mul(r, B.sub(dy, inner))

    def rows_and_columns(self) -> Node:
        """Sums of one tensor over different axes."""
        x = self.operand(lambda n: n.rank > 1) or self.nodes[0]
        first = self.reduced(x, self.axes(x))
        self.keep(first)
        return self.reduced(x, self.axes(x))

    # ---- moves: views
    def radix(self) -> Node:
        """A reshape: an axis into digits, two adjacent ones into one, or any."""
        x = self.operand(lambda n: n.rank > 0) or self.nodes[0]
        sizes = list(x.sizes)
        d = self.choose.below(max(x.rank, 1))
        if self.chance(45) and x.rank:
            divisor = self.pick([k for k in range(1, sizes[d] + 1) if sizes[d] % k == 0] or [1])
            sizes[d : d + 1] = [divisor, sizes[d] // divisor]
        elif self.chance(60) and d + 1 < x.rank:
            sizes[d : d + 2] = [sizes[d] * sizes[d + 1]]
        else:
            sizes = list(self.factorised(x.elements))
        return B.reshape(x, sizes)

    def permuted(self) -> Node:
        x = self.operand(lambda n: n.rank > 1) or self.nodes[0]
        return B.permute(x, self.shuffled(range(x.rank)))

    def pieces(self) -> Node:
        """A pad, cat or slice along one axis, which later reductions run over."""
        x = self.operand(lambda n: n.rank > 0) or self.nodes[0]
        d = self.choose.below(max(x.rank, 1))
        n = x.sizes[d]
        along = [0] * x.rank
        match self.choose.below(3):
            case 0:
                low, high = list(along), list(along)
                low[d], high[d] = self.choose.below(4), self.choose.below(4)
                return make("pad", (x,), {"low": tuple(low), "high": tuple(high), "value": self.constant(x.dtype)})
            case 1:
                sizes = list(x.sizes)
                sizes[d] = self.pick((1, 2, n, n + 1))
                other = x if self.chance(30) else self.of_shape(tuple(sizes), x.dtype)
                return make("cat", (x, other) if self.chance(50) else (other, x), {"axis": d})
            case _:
                start, stop, step = list(along), list(x.sizes), [1] * x.rank
                start[d], step[d] = self.choose.below(n), self.pick((1, 1, 2, 3))
                return make("slice", (x,), {"start": tuple(start), "stop": tuple(stop), "step": tuple(step)})

    def mask(self) -> Node:
        """Positions compared with a bound or with another axis's, the rest a constant."""
        x = self.operand(lambda n: n.rank > 0) or self.nodes[0]
        d, e = self.choose.below(x.rank), self.choose.below(x.rank)
        row = B.iota(x.sizes, d)
        limit = B.iota(x.sizes, e) if d != e else B.full((), self.choose.below(x.sizes[d] + 1), i64)
        return B.where(B.lt(row, limit), x, B.full((), self.pick((0, -1, 1)), x.dtype))

    # ---- moves: contractions, gathers
    def product(self) -> Node:
        """x times another tensor along one of its axes, with batch axes, the axes of both in any order."""
        x = self.operand(lambda n: 1 <= n.rank <= 3 and n.dtype.is_float) or self.float_operand()
        reduced = x.rank - 1 if self.chance(60) else self.choose.below(x.rank)
        batch = [d for d in range(x.rank) if d != reduced and self.chance(30)]
        columns = x.rank  # the label of the axis that the other operand adds
        extents = [*x.sizes, self.pick((1, 1, 2, 3, 8, 17, 40))]
        other_labels = self.shuffled([*batch, reduced, *([columns] if extents[columns] > 1 else [])])
        out = [d for d in (*range(x.rank), columns) if d != reduced and (d < columns or columns in other_labels)]
        if self.chance(30):
            out = self.shuffled(out)
        if prod(extents[d] for d in out) > self.max_elements:
            raise RuleError("too many elements")
        other = self.of_shape(tuple(extents[d] for d in other_labels), x.dtype)
        return B.einsum(x, other, range(x.rank), other_labels, out)

    def attention(self) -> Node:
        """Scores of short heads, their softmax, and what it weighs."""
        heads, queries, keys = self.pick((1, 2, 3)), self.pick((1, 5, 17)), self.pick((3, 16, 33, 65))
        width = self.pick((4, 16, 20, 32))
        dtype = self.pick((f32, f32, bf16, f16))
        q, k, v = (self.input((heads, n, width), dtype) for n in (queries, keys, keys))
        scores = B.mul(B.einsum(q, k, (0, 1, 3), (0, 2, 3), (0, 1, 2)), width**-0.5)
        if self.chance(40):
            row, column = B.iota(scores.sizes, 1), B.iota(scores.sizes, 2)
            scores = B.where(B.le(column, B.add(row, keys - queries)), scores, -1e4)
        weights = self.keep(B.softmax(scores, -1))
        return weights if self.chance(30) else B.einsum(weights, v, (0, 1, 2), (0, 2, 3), (0, 1, 3))

    def labels(self) -> Node:
        """Losses at labels along one axis, or rows of a table."""
        x = self.float_operand()
        if x.elements == 0:
            raise RuleError("nothing to gather")
        if self.chance(30):
            index = self.input((self.pick((1, 3, 8, 17)),), self.pick((i32, i64)))
            return B.index_select(x, self.choose.below(x.rank), index)
        axis = self.choose.below(x.rank)
        targets = self.input(tuple(1 if d == axis else n for d, n in enumerate(x.sizes)), self.pick((i32, i64)))
        y = B.log_softmax(x, axis) if self.chance(60) else x
        return B.neg(B.gather(y, axis, targets))

    # ---- moves: elements
    def element(self) -> Node:
        """A tame function, so that most values stay finite."""
        x = self.float_operand()
        match self.choose.below(8):
            case 0:
                return B.exp(B.minimum(x, 4.0))
            case 1:
                return B.tanh(x)
            case 2:
                return B.mul(x, x)
            case 3:
                return B.sqrt(B.abs_(x))
            case 4:
                return B.gelu(x)
            case 5:
                return B.silu(x)
            case 6:
                return B.mul(x, self.of_shape(x.sizes, x.dtype))
            case _:
                return B.add(x, self.of_shape(x.sizes, x.dtype))

    def convert(self) -> Node:
        x = self.operand() or self.nodes[0]
        return self.cast(x, self.pick((f32, f32, bf16, f16, f64, i32, i64)))


def reduction_graph(choose: Chooser, *, steps: int = 6, max_elements: int = 6000) -> Graph:
    """A graph with reductions or contractions, mostly one that a loop program can hold."""
    m = Grower(choose, exact=False, max_elements=max_elements)
    m.tensor()
    reducing = [m.spread] * 4 + [m.composite] * 3 + [m.reduce] * 3 + [m.rows_and_columns] * 2 + [m.group_norm] * 2
    reducing += [m.batch_norm, m.layer_norm_gradient, m.product, m.product, m.attention, m.arg, m.labels]
    leading = [m.element] * 4 + [m.convert] * 2 + [m.radix] * 2 + [m.permuted, m.pieces, m.pieces, m.mask]
    for _ in range(choose.below(3)):
        m.step(leading)
    m.step(reducing)
    for _ in range(choose.below(steps)):
        m.step(reducing + leading)
    return m.graph(1 + choose.below(3))
