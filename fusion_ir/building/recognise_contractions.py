"""Products of matrices that were spelled as broadcast, multiply and sum, read as one contraction where that is exact.

    cast(a[M, K]) -> f32[M, 1, K] -> f32[M, N, K]
    cast(b[N, K]) -> f32[1, N, K] -> f32[M, N, K]        mul, then sum over K  ->  contract(a, b): f32[M, N]

Exact, since a product of two numbers of 16 bits or less has no more bits than f32 holds (bf16: 16, f16: 22, of 24), and
both forms sum in f32, in any order. Of bf16, whose exponents are those of f32, that leaves out products below 2^-126 or
beyond the largest number, which a contraction rounds in the sum. Casts and broadcasts may come in any order. f32
operands are left as they are: their products are rounded before they are summed, and a contraction does not do that.
"""

from collections.abc import Iterable, Sequence

from fusion_ir.building.products import einsum
from fusion_ir.building.shapes import broadcast_in_dim
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.named import NamedGraph, names_of_nodes
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, DType, f32
from fusion_ir.ops import axis_maps_of, kept_axes
from fusion_ir.ops.views import SELECTIONS

_Einsum = tuple[Node, Node, list[int], list[int], list[int], DType]  # operands, their labels, those kept, result

EXACT_IN_F32 = tuple(name for name, row in DTYPES.items() if row.is_float and 2 * row.digits <= f32.digits)


def read_graph(
    graph: Graph,
    input_names: Sequence[str],
    output_names: Sequence[str],
    tensors: Iterable[tuple[str, Node]],
    notes: Sequence[str] = (),
) -> NamedGraph:
    """The named graph that a reader returns: `graph` after `contracted`, with the names that the reader bound to
    `tensors`, in its order."""
    made, image = _contracted(graph)
    names = names_of_nodes(made, tensors, image)
    return NamedGraph(made, tuple(input_names), tuple(output_names), tuple(notes), names)


def contracted(graph: Graph) -> Graph:
    """The graph with such sums replaced by contractions, which round at once where the sum's only reader is a cast to
    the operands' dtype; `graph` itself where there are none. A product that other nodes read, too, is left as it is."""
    return _contracted(graph)[0]


def _contracted(graph: Graph) -> tuple[Graph, dict[Node, Node]]:
    """The result of `contracted`, and for each node of `graph` the node that it became; {} where nothing changed."""
    outputs = {o.node for o in graph.outputs}
    readers = graph.users
    image: dict[Node, Node] = {}
    for node in graph.nodes:
        summed = node.args[0] if node.op == "cast" else node
        alone = summed is node or (readers[summed] == (node,) and summed not in outputs)
        made = _contraction(summed, node.dtype, readers, outputs) if alone else None
        image[node] = _over(made, image) if made else node.over(tuple(image[a] for a in node.args))
    if all(image[o.node] is o.node for o in graph.outputs):
        return graph, {}
    return Graph(graph.inputs, tuple(OutputSpec(image[o.node], o.strides, o.donates) for o in graph.outputs)), image


def _contraction(node: Node, dtype: DType, readers: dict[Node, tuple[Node, ...]], outputs: set[Node]) -> _Einsum | None:
    """The arguments of `einsum` for a sum of products, rounded to `dtype`; None where the node is no such sum."""
    if node.op != "sum" or node.dtype != f32 or node.args[0].op != "mul":
        return None
    (product,) = node.args
    if readers[product] != (node,) or product in outputs:
        return None
    traced = [_traced(arg) for arg in product.args]
    if None in traced:
        return None
    (a, a_at), (b, b_at) = (t for t in traced if t)
    if a.dtype != b.dtype or dtype not in (f32, a.dtype):
        return None
    summed = node.ints("axes")
    kinds = {"m": 0, "n": 0, "k": 0}
    for axis, n in enumerate(product.sizes):
        if n == 1:
            continue
        in_a, in_b = a_at[axis] >= 0, b_at[axis] >= 0
        if (axis in summed and not (in_a and in_b)) or not (in_a or in_b):
            return None
        kinds["k"] += axis in summed
        kinds["m"] += not in_b
        kinds["n"] += not in_a
    if not all(kinds.values()):  # no product of two matrices: families of reductions have it
        return None
    kept = [axis for axis in range(product.rank) if axis not in summed]
    return a, b, _labels(a, a_at), _labels(b, b_at), kept, dtype


def _over(made: _Einsum, image: dict[Node, Node]) -> Node:
    a, b, a_labels, b_labels, kept, dtype = made
    out = [axis for axis in kept if axis in a_labels or axis in b_labels]  # others have extent 1 and are in no operand
    product = einsum(image[a], image[b], a_labels, b_labels, out, dtype)
    sizes = iter(product.sizes)
    shape = [next(sizes) if axis in out else 1 for axis in kept]
    return broadcast_in_dim(product, shape, [kept.index(axis) for axis in out])


def _labels(x: Node, at: list[int]) -> list[int]:
    """A label for each axis of x: that of the product's axis that it is, or one of its own, for an axis of extent 1."""
    own = {position: axis for axis, position in enumerate(at) if position >= 0}
    return [own.get(position, len(at) + position) for position in range(x.rank)]


def _traced(node: Node) -> tuple[Node, list[int]] | None:
    """The tensor behind views and a cast to f32 that is exact, and for each axis of `node` its position there, -1 where
    it was broadcast. None where there is no such cast, or a view that is no matter of whole axes."""
    at, is_cast = list(range(node.rank)), False
    while True:
        if node.op == "cast" and node.dtype == f32 and node.args[0].dtype.name in EXACT_IN_F32 and not is_cast:
            is_cast = True
        elif (moved := _positions(node)) is not None:
            at = [moved[p] if p >= 0 else -1 for p in at]
        else:
            return (node, at) if is_cast else None
        (node,) = node.args


def _positions(node: Node) -> list[int] | None:
    """For each axis of a view, which axis of its operand it is, -1 where it is none; None for any other op, and where
    axes are cut, split or joined."""
    if node.op not in SELECTIONS or node.op == "slice" or None in axis_maps_of(node)[0]:
        return None
    (kept,) = kept_axes(node)
    return [kept.get(axis, -1) for axis in range(node.rank)]
