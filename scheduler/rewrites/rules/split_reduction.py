"""Splitting reductions: in parts that tasks can share, and one more reduction over the parts.

    sum over i of x[i, j], i < 8192  ->  sum over t of (sum over k of x[512 t + k, j]), t < 16, k < 512

Reductions have no order in this language, so this changes no meaning. Parts are accumulated and stored in the dtype of
accumulation. A sum down the columns is split although its columns could be shared among tasks: only by rows can it join
the kernel of the gradient that reads the same rows. Long rows are split although there are enough of them, for the sake
of what reads a row twice: a part stays in cache, and what is known of all parts puts their results right.

    v = var x             ->  v = (sum over t of var of part t + (mean of part t - mean)^2) / parts
    sum of exp(x - max x) ->  sum over t of (sum over part t of exp(x - m[t])) exp(m[t] - max m), m[t] = max of part t

(Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983; Milakov and Gimelshein, "Online
normalizer calculation for softmax", 2018.)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import accumulate_dtype
from fusion_ir.ops import OPS, OpKind, kind_of, make
from fusion_ir.records import Device, Numerics
from scheduler.rewrites.matching.graph_queries import GraphQueries
from scheduler.rewrites.rule import Alternative, Rule
from scheduler.rewrites.rules.split_contract import split_contract, split_long_contract
from scheduler.rewrites.rules.split_scan import split_scan

LEAST_ELEMENTS = 1 << 16  # smaller tensors take less time than a launch
LEAST_PART = 4  # elements of the split axis in a part
LEAST_SHARE = 1 << 16  # elements of a block of threads: fewer take less time than another launch
CHEAP, FEW_NODES = 2.0, 12  # arithmetic of a node that is made again, and how many of them
MADE_AGAIN = 2.1  # times the bytes of what would be written and read: a little more, for what is one value a row
CONTRACTION: tuple[str, str, Numerics] = (
    "split-contraction",
    "contract over k of a[m, k] b[k, n] = sum over t of (contract over j of a[m, t, j] b[t, j, n])",
    "reassociate",
)
SCAN: tuple[str, str, Numerics] = (
    "split-scan",
    "sum over j <= i of x[j] = (sum of part t up to i) + sum over s < t of (sum of part s)",
    "reassociate",
)
LONG_ROW = 1 << 21  # elements: 8 MiB of f32, of which a last cache holds few; at 2 MiB, splitting lost a tenth
TASKS_PER_UNIT = 8  # parts that a reduction is split into, by thread of a CPU
BLOCKS_PER_UNIT = 2  # such parts by multiprocessor of a GPU
BLOCK_COLUMNS = 128  # that a block of threads sums down at once


@dataclass(frozen=True)
class Tasks:
    """count: tasks that a reduction should be shared among, at least. columns: results side by side that one task
    computes while others compute those beside them (a block of threads); 0: a task sums down all columns of the rows it
    has. joined: sizes of tensors whose rows are summed, and over which axes: only blocks that have whole rows can
    compute such a sum and sums down the columns together."""

    count: int
    columns: int = 0
    joined: frozenset[tuple[tuple[int, ...], tuple[int, ...]]] = frozenset()

    def among(self, graph: Graph) -> "Tasks":
        """These tasks, with `joined` from the reductions of a graph."""
        reduced = (n for n in graph.nodes if kind_of(n) is OpKind.REDUCTION and n.op not in ("argmax", "argmin"))
        rows = (n for n in reduced if n.elements > 1 and n.args[0].rank - 1 in n.ints("axes"))
        return replace(self, joined=frozenset((n.args[0].sizes, n.ints("axes")) for n in rows))

    def joins(self, x: Node, axes: Sequence[int]) -> bool:
        """Whether the rows of a tensor of x's sizes are summed over other axes than these."""
        return any(sizes == x.sizes and set(over) != set(axes) for sizes, over in self.joined)


def split_tasks(device: Device) -> Tasks:
    """Among how many tasks reductions are split on a device."""
    if device.target == "cpu":
        return Tasks(TASKS_PER_UNIT * device.units)
    return Tasks(BLOCKS_PER_UNIT * device.units, BLOCK_COLUMNS)


def splitting(tasks: Tasks) -> tuple[Rule, ...]:
    """Rules that split reductions which give too few results for the tasks, those over the leading axis of rows where
    tasks sum down all columns, and those over long rows; for blocks of threads, contractions and running sums, too."""
    scans = Rule(*SCAN, lambda node: _scan_in_parts(node, tasks))
    contractions = Rule(*CONTRACTION, lambda node: split_contract(node, tasks.count))
    reductions = (
        Rule(
            "rescale-sum",
            "sum of exp(x - max x) = sum over t of exp(m[t] - max m) (sum over part t of exp(x - m[t]))",
            "reassociate",
            lambda node: _rescaled(node, tasks),
        ),
        Rule(
            "split-reduction",
            "op over i of x[i] = op over t of (op over k of x[n t + k])",
            "exact",
            lambda node: _split(node, tasks),
        ),
    )
    return (contractions, scans, *reductions) if tasks.columns else reductions


def split_offers(tasks: Tasks) -> tuple[Alternative, ...]:
    """Splits that do not always pay, for a search to weigh: of contractions and running sums among the cores of a
    CPU."""

    def find(node: Node, around: GraphQueries) -> Iterator[Node]:
        found = split_long_contract(node, tasks.count)
        if found is not None:
            yield found

    def find_scan(node: Node, around: GraphQueries) -> Iterator[Node]:
        found = _scan_in_parts(node, tasks)
        if found is not None:
            yield found

    return () if tasks.columns else (Alternative(*CONTRACTION, find), Alternative(*SCAN, find_scan))


def _scan_in_parts(node: Node, tasks: Tasks) -> Node | None:
    """A running sum of so few rows that most tasks would have none, in parts."""
    return split_scan(node, max(tasks.count // (4 if tasks.columns else TASKS_PER_UNIT), 2), tasks.count)


@dataclass(frozen=True)
class _Parts:
    """A tensor in parts. whole: [..., parts, part, ...]. inner: axes of it that a reduction over a part runs over.
    place: the axis of the parts in the result of such a reduction. count: number of parts."""

    whole: Node
    inner: tuple[int, ...]
    place: int
    count: int

    def each(self, op: str, x: Node | None = None) -> Node:
        """`op` over every part: of the tensor, or of another one in such parts."""
        return make(op, [self.whole if x is None else x], {"axes": self.inner})

    def together(self, op: str, partial: Node) -> Node:
        """`op` over the results of all parts."""
        return make(op, [partial], {"axes": (self.place,)})

    def for_elements(self, partial: Node) -> Node:
        """One value for each part, repeated for all its elements."""
        return build.broadcast_in_dim(partial, self.whole.sizes, _left(self.whole.rank, self.inner))

    def for_parts(self, total: Node, like: Node) -> Node:
        """One value for all parts, repeated for each."""
        return build.broadcast_in_dim(total, like.sizes, _left(like.rank, (self.place,)))


def _split(node: Node, tasks: Tasks) -> Node | None:
    if node.op not in ("sum", "mean", "var", "prod", "max", "min", "any", "all"):
        return None
    (x,) = node.args
    axes = node.ints("axes")
    wide = build.cast(x, accumulate_dtype(x.dtype)) if node.op in ("sum", "mean", "var", "prod") else x
    parts = _parts(wide, axes, tasks)
    if parts is None:
        return None
    if node.op not in ("mean", "var"):
        return build.cast(parts.together(node.op, parts.each(node.op)), node.dtype)
    count = prod(x.sizes[a] for a in axes)
    sums = parts.each("sum")
    mean = build.div(parts.together("sum", sums), count)
    if node.op == "mean":
        return build.cast(mean, node.dtype)
    part = count // parts.count
    means = build.div(sums, part)
    inside = build.sub(parts.whole, parts.for_elements(means))
    between = build.sub(means, parts.for_parts(mean, means))
    squares = build.add(parts.each("sum", build.mul(inside, inside)), build.mul(build.mul(between, between), part))
    divisor = max(count - node.attr("correction", int), 0)
    return build.cast(build.div(parts.together("sum", squares), divisor), node.dtype)


def _rescaled(node: Node, tasks: Tasks) -> Node | None:
    if node.op != "sum" or node.args[0].op != "exp" or node.args[0].args[0].op != "sub":
        return None
    if not node.dtype.is_float or accumulate_dtype(node.dtype) != node.dtype:
        return None
    axes, (x, subtracted) = node.ints("axes"), node.args[0].args[0].args
    parts = _parts(x, axes, tasks)
    if parts is None:
        return None
    largest = parts.each("max")
    maximum = parts.together("max", largest)  # by now those over x are in parts
    if not _repeats(subtracted, maximum, _left(x.rank, axes)):
        return None
    # Of parts that are -inf throughout: less that, they would be NaN.
    finite = build.maximum(largest, float(np.finfo(node.dtype.numpy).min))
    sums = parts.each("sum", build.exp(build.sub(parts.whole, parts.for_elements(finite))))
    scales = build.exp(build.sub(finite, parts.for_parts(maximum, finite)))
    return parts.together("sum", build.mul(sums, scales))


def _repeats(node: Node, x: Node, axes: Sequence[int]) -> bool:
    """Whether the node is x, repeated, with x's axes as its own `axes`."""
    dims: Sequence[int] = range(node.rank)
    while node.op == "broadcast_in_dim":
        node, dims = node.args[0], [dims[d] for d in node.ints("dims")]
    return node is x and list(dims) == list(axes)


def _wanted(x: Node, axes: Sequence[int], tasks: Tasks) -> int:
    """The least number of parts that a reduction of `x` is to be split into; 0: it stays whole."""
    results = prod(n for d, n in enumerate(x.sizes) if d not in axes)
    is_long = x.elements // results >= LONG_ROW
    if not tasks.columns:
        outside = prod(x.sizes[: min(axes)])  # rows of results that tasks can share as they are
        is_wanted = results < tasks.count or (outside < tasks.count and x.rank - 1 not in axes) or is_long
        return tasks.count if is_wanted else 0
    inside = prod(x.sizes[max(axes) + 1 :])
    if inside > 1 and tasks.joins(x, axes):
        least = max(tasks.count // 2, 1)  # each part writes all columns
        return least if results // inside < least else 0
    blocks = results // inside * -(-inside // tasks.columns)
    is_wanted = (blocks < tasks.count and x.elements // blocks >= LEAST_SHARE) or is_long
    return max(-(-tasks.count // blocks), 2) if is_wanted else 0


def _parts(x: Node, axes: Sequence[int], tasks: Tasks) -> _Parts | None:
    """Whether and how to split a reduction of `x`: along its outermost axis that a suitable number divides."""
    least = _wanted(x, axes, tasks) if x.elements >= LEAST_ELEMENTS else 0
    for axis in sorted(axes) if least else ():
        n = x.sizes[axis]
        for count in range(least, 4 * least + 1):
            if n % count == 0 and n // count >= LEAST_PART:
                sizes = (*x.sizes[:axis], count, n // count, *x.sizes[axis + 1 :])
                apart = tasks.columns and not tasks.joins(x, axes)
                whole = _made_again(x, sizes) if apart else build.reshape(x, sizes)
                inner = tuple(a if a < axis else a + 1 for a in sorted(axes))
                return _Parts(whole, inner, sum(1 for d in range(axis) if d not in axes), count)
    return None


def _made_again(x: Node, sizes: Sequence[int]) -> Node:
    """`x` in the shape of its parts. Where x takes little arithmetic, and its operands no more bytes than writing and
    reading x, the arithmetic is done on the operands in that shape: otherwise, for those who read both x and the
    reduction, x would be stored by a kernel that cannot do more than reduce it.

        sum(reshape(x - mean))  ->  sum(reshape(x) - reshape(mean)), beside (x - mean) / deviation of another kernel
    """
    inner: dict[Node, None] = {}
    leaves: dict[Node, None] = {}
    stack = [x]
    while stack:
        node = stack.pop()
        cheap = kind_of(node) is OpKind.POINTWISE and OPS[node.op].cost <= CHEAP
        (inner if cheap else leaves)[node] = None
        stack += [a for a in node.args if cheap and a not in inner]
    if len(inner) > FEW_NODES or sum(map(_stored_bytes, leaves)) > MADE_AGAIN * x.bytes:
        return build.reshape(x, sizes)
    made: dict[Node, Node] = {leaf: build.reshape(leaf, sizes) for leaf in leaves}

    def again(node: Node) -> Node:
        if node not in made:
            made[node] = make(node.op, [again(a) for a in node.args], dict(node.attrs))
        return made[node]

    return again(x)


def _stored_bytes(node: Node) -> int:
    """Bytes of the tensor that a view is made of, the largest of several; of other nodes their own."""
    while kind_of(node) is OpKind.VIEW and node.args:
        node = max(node.args, key=lambda a: a.bytes)
    return node.bytes


def _left(rank: int, dropped: Sequence[int]) -> list[int]:
    return [d for d in range(rank) if d not in dropped]
