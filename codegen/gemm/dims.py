"""The axes of a contraction, each with a stride in every tensor: views seen through, axes that step as one merged.

contract(x[8, 32, 64], w[64, 48]) : f32[8, 32, 48]    ->   256: (64, 0, 48)   48: (0, 1, 1)   sum 64: (1, 48, 0)
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, permutations
from math import prod

from codegen.kernel import Reject
from codegen.lowering.canonical_inputs import with_own_inputs
from codegen.lowering.index import Affine, Axis
from codegen.lowering.stores import pull_outputs
from codegen.lowering.value import is_exact_cast
from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, i32
from fusion_ir.ops import OPS, OpKind, make, make_input
from fusion_ir.ops.contract import ORDERED_PRODUCTS, products, summed_sizes

SCRATCH_ALIGNMENT_BYTES = 64


@dataclass(frozen=True)
class Dim:
    """An axis: its extent, and its stride (elements) in a, in b and in the result; 0 where it moves nothing there.
    others: its strides in further tensors of the result's axes, such as a bias."""

    extent: int
    a: int
    b: int
    c: int
    summed: bool
    others: tuple[int, ...] = ()


@dataclass(frozen=True)
class Matrix:
    """An operand in memory: number of the graph's input, and where in it the operand starts, in elements."""

    tensor: int
    offset: int


@dataclass(frozen=True)
class Contraction:
    """result[...] = sum a[...] * b[...] over `dims`, summed in `dtype`, which operands may be narrower than. The result
    starts at element 0."""

    dtype: DType
    a: Matrix
    b: Matrix
    dims: tuple[Dim, ...]

    @property
    def outer(self) -> tuple[Dim, ...]:
        """The axes of the result."""
        return tuple(d for d in self.dims if not d.summed)

    def swapped(self) -> "Contraction":
        """The contraction with its operands exchanged: the transposed problem, with an equal result."""
        dims = tuple(Dim(d.extent, d.b, d.a, d.c, d.summed, d.others) for d in self.dims)
        return Contraction(self.dtype, self.b, self.a, dims)


@dataclass(frozen=True)
class Digit:
    """Part of a mixed-radix number: index // weight % extent moves `stride` elements in one tensor."""

    weight: int
    extent: int
    stride: int


def long_contract(graph: Graph) -> Node | Reject:
    """The one contraction of a graph, if it is over enough products for a library; no other sums."""
    costly = (OpKind.CONTRACT, OpKind.REDUCTION, OpKind.SCAN, OpKind.GATHER, OpKind.SCATTER)
    found = [n for n in graph.nodes if n.op in OPS and OPS[n.op].kind in costly]
    if len(found) != 1 or found[0].op != "contract":
        return Reject(f"holds {', '.join(n.op for n in found) or 'no contraction'}; takes one contraction alone")
    (node,) = found
    k = products(node)
    if k <= ORDERED_PRODUCTS:
        return Reject(f"a contraction over {k} products is summed in order (more than {ORDERED_PRODUCTS}: any)")
    return node if node.elements else Reject("the product is empty")


def sum_dtype(node: Node) -> DType:
    """The dtype that a contraction is summed in: its accumulator's; for whole numbers, which wrap, i32 where the result
    has at most 32 bits."""
    acc = node.attr("acc", DType)
    return acc if node.dtype.is_float or node.dtype.bytes > i32.bytes else i32


def with_scratch(graph: Graph, node: Node, strides: Sequence[int], acc: DType) -> Graph:
    """The graph with the contraction read from one more input, behind the others, of dtype `acc`."""
    spec = InputSpec(node.shape, acc, tuple(strides), SCRATCH_ALIGNMENT_BYTES)
    scratch = make_input(len(graph.inputs), spec)
    new: dict[Node, Node] = {node: scratch if acc == node.dtype else make("cast", [scratch], {"dtype": node.dtype})}
    for n in graph.nodes:
        if n not in new:
            new[n] = n.over(tuple([new[a] for a in n.args]))
    outputs = tuple(OutputSpec(new[o.node], o.strides, o.donates) for o in graph.outputs)
    return Graph((*graph.inputs, spec), outputs)


def alone(graph: Graph, node: Node) -> Graph:
    """A node and all nodes below it as a graph with its own inputs: equal for segments that have the node in common."""
    return with_own_inputs(Graph(graph.inputs, (OutputSpec(node, dense_strides(node.sizes)),)))[0]


def is_computed(node: Node, *, widened: bool) -> bool:
    """Whether a node is no view of inputs. widened: whether exact casts are views, too."""
    return any(
        n.op != "input" and OPS[n.op].kind is not OpKind.VIEW and not (widened and _widens(n)) for n in _cone(node)
    )


def stored_product(graph: Graph, node: Node) -> list[Digit] | Reject:
    """Where the graph's only output has each element of the contraction, as digits of its row-major number."""
    if len(graph.outputs) != 1 or graph.outputs[0].node.elements != node.elements:
        return Reject("writes other tensors than the product alone")
    (output,) = graph.outputs
    behind = with_scratch(graph, node, dense_strides(node.sizes), node.dtype)
    seen = _seen_through(behind, behind.outputs[0].node, widened=False)
    if isinstance(seen, Reject):
        return Reject(f"the output is no view of the product: {seen.reason}")
    _, offset, index = seen
    return [
        Digit(offset.coef(axis), axis.extent, sum(e.coef(axis) * s for e, s in zip(index, output.strides, strict=True)))
        for axis in offset.axes
    ]


def stored_operand(graph: Graph, node: Node) -> tuple[Matrix, list[Digit]] | Reject:
    """Where a view of one input starts, and what each axis of its row-major number moves there."""
    seen = _seen_through(graph, node, widened=False)
    if isinstance(seen, Reject):
        return seen
    tensor, offset, index = seen
    weights = dense_strides(node.sizes)
    return Matrix(tensor, offset.c), [
        Digit(weights[position] * weight, axis.extent, offset.coef(axis))
        for position, e in enumerate(index)
        for axis, weight in _plain(e)
    ]


def contraction(
    graph: Graph,
    node: Node,
    result: Iterable[Digit],
    apart: int = 0,
    others: Sequence[Iterable[Digit]] = (),
    *,
    widened: bool = False,
) -> Contraction | Reject:
    """The contraction with its operands traced to memory.

    result: digits of the product's row-major number. apart: axes of at least this stride in the result are not merged
    with others. others: digits of the product's number in further tensors, whose strides the axes get too. widened:
    whether operands may be of a narrower type in memory, widened by an exact cast.
    """
    sizes = [*node.sizes, *summed_sizes(node)]
    k = products(node)
    weights = dense_strides(sizes)
    tensors = [[Digit(d.weight * k, d.extent, d.stride) for d in digits] for digits in (result, *others)]
    matrices: dict[str, Matrix] = {}
    for name, operand, axes in zip("ab", node.args, (node.ints("a_axes"), node.ints("b_axes")), strict=True):
        seen = _seen_through(graph, operand, widened=widened)
        if isinstance(seen, Reject):
            return Reject(f"operand {name} {seen.reason}")
        tensor, offset, index = seen
        root_of = {position: root for root, position in enumerate(axes) if position >= 0}
        matrices[name] = Matrix(tensor, offset.c)
        tensors.append(
            [
                Digit(weights[root_of[position]] * weight, axis.extent, offset.coef(axis))
                for position, e in enumerate(index)
                for axis, weight in _plain(e)
            ]
        )
    c, *more, a, b = tensors
    marks = sorted({1, prod(sizes), *weights, *(w for digits in tensors for d in digits for w in _ends(d))})
    if any(high % low for low, high in pairwise(marks)):
        return Reject("the axes of the operands and of the product do not nest")
    dims = [
        Dim(
            high // low,
            _stride(a, low),
            _stride(b, low),
            _stride(c, low),
            low < k,
            tuple(_stride(digits, low) for digits in more),
        )
        for low, high in pairwise(marks)
    ]
    return Contraction(sum_dtype(node), matrices["a"], matrices["b"], merged(dims, apart))


def merged(dims: Sequence[Dim], apart: int = 0) -> tuple[Dim, ...]:
    """The axes, two made one wherever every tensor steps through them as through one. apart: see `contraction`."""
    found = list(dims)
    while pair := next(((p, q) for p, q in permutations(found, 2) if _steps_as_one(p, q, apart)), None):
        high, low = pair
        found[found.index(low)] = Dim(high.extent * low.extent, low.a, low.b, low.c, low.summed, low.others)
        found.remove(high)
    return tuple(found)


def _steps_as_one(high: Dim, low: Dim, apart: int) -> bool:
    if not high.summed and low.c < apart <= high.c:
        return False
    strides = zip((high.a, high.b, high.c, *high.others), (low.a, low.b, low.c, *low.others), strict=True)
    return high.summed == low.summed and all(h == low.extent * s for h, s in strides)


def _ends(digit: Digit) -> tuple[int, int]:
    return digit.weight, digit.weight * digit.extent


def _stride(digits: Sequence[Digit], weight: int) -> int:
    """Elements that a step of `weight` moves; 0 if no digit holds it."""
    return next((d.stride * (weight // d.weight) for d in digits if d.weight <= weight < d.weight * d.extent), 0)


def _plain(e: Affine) -> list[tuple[Axis, int]]:
    return [(axis, k) for axis, k in e.terms if isinstance(axis, Axis)]


_Seen = tuple[int, Affine, tuple[Affine, ...]]  # input, element offset, the node's index over the axes of the offset


def _seen_through(graph: Graph, node: Node, *, widened: bool) -> _Seen | Reject:
    """The input that a node is a view of, the node's offset there, and its index; or why it is no such view. A view
    that several segments share is looked at once. widened: whether exact casts are seen through, too."""
    if is_computed(node, widened=widened):
        return Reject("is computed, not stored")
    view, position = with_own_inputs(Graph(graph.inputs, (OutputSpec(node, dense_strides(node.sizes)),)))
    seen = _seen_alone(view)
    if isinstance(seen, Reject):
        return seen
    tensor, offset, index = seen
    return next(given for given, own in position.items() if own == tensor), offset, index


@lru_cache(maxsize=1024)
def _seen_alone(view: Graph) -> _Seen | Reject:
    pulled = pull_outputs(view)
    values, _, _ = pulled.pull()
    if len(values) != 1:
        return Reject("is put together from pieces")
    value = values[0]
    while is_exact_cast(value):
        (value,) = value.args
    if value.op != "load":
        return Reject("is not in memory")
    offset, index = value.offset, pulled.stores[0].index
    if offset.opaque_axes or any(e.opaque_axes or e.c for e in index):
        return Reject("is no regular view: its axes do not nest")
    return value.tensor, offset, index


def _widens(node: Node) -> bool:
    return node.op == "cast" and node.dtype.holds(node.args[0].dtype)


def _cone(node: Node) -> set[Node]:
    found, stack = {node}, [node]
    while stack:
        new = [a for a in stack.pop().args if a not in found]
        found.update(new)
        stack += new
    return found
