"""Lower bounds on the cost of computing a graph: distinct bytes that must be read and written, and arithmetic.

Two passes. Forward: how many different values a node's elements can have (a broadcast adds none). Backward: how many of
its elements anything needs (a slice needs few). Both are counted so that a mistake makes the cost lower: these numbers
bound.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import NamedTuple

from fusion_ir.core.graph import Graph, InputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType
from fusion_ir.ops import OPS, OpKind, axis_maps_of, reduced_axes
from fusion_ir.ops.contract import products

MOST_BEHIND = 1e18  # operations behind one element, beyond which nobody counts
MOST_TIMES = 1e60  # that a node is computed, likewise: x + x a thousand times over asks for it 2^1000 times


@dataclass(frozen=True)
class Traffic:
    """read_bytes, written_bytes: distinct ones. operations: arithmetic of the distinct elements needed, as `OPS` counts
    it, two per product of a contraction. vector_operations: those that no narrower or special unit could take over.
    pulled_operations: arithmetic and loads where every element of every output computes all that it needs by itself.
    products: the part of `operations` in contractions that matrix units may take over, by dtype of the operands before
    casts that lose nothing. f32_products: the part of vector_operations in contractions of f32.
    elements: of the largest output. longest: operations and loads of the output element that pulls most.
    made_operations, made_products: `operations` and `products` as kernels do them, for predictions: every needed
    element of a contraction counts, also equal ones and those of which a bound knows too little, and dtypes are those
    written. made_contracted: the part of made_operations in contractions."""

    read_bytes: int
    written_bytes: int
    operations: float
    vector_operations: float
    pulled_operations: float = 0.0
    products: tuple[tuple[str, float], ...] = ()
    elements: int = 0
    longest: float = 0.0
    made_operations: float = 0.0
    made_products: tuple[tuple[str, float], ...] = ()
    made_contracted: float = 0.0
    f32_products: float = 0.0

    @property
    def bytes(self) -> int:
        return self.read_bytes + self.written_bytes


class LeastTraffic(NamedTuple):
    """Lower bound on the traffic of a segment, known without building the segment: bytes, and `made_products`, those of
    f32 and f64 among them. elements: of the largest output. refusing: families that do not take the segment."""

    bytes: int
    products: tuple[tuple[str, float], ...] = ()
    elements: int = 0
    refusing: frozenset[str] = frozenset()


def traffic_of(graph: Graph) -> Traffic:
    """The traffic of one launch that computes the graph, or of any number of launches that do."""
    different = _different(graph)
    needed = _needed(graph)
    read_bytes = 0
    work: dict[tuple[object, ...], tuple[float, float, float]] = {}
    multiplied: dict[tuple[object, ...], str] = {}  # contractions that matrix units may take over: their dtype
    of_f32: set[tuple[object, ...]] = set()  # contractions
    narrow_made: dict[tuple[object, ...], str] = {}  # those whose operands are narrow as they are written
    narrow = _narrowest(graph)
    roots: dict[Node, object] = {}  # what views are made of: the same of all views of the same tensors
    for node in graph.nodes:
        count = _read(node, different[node], needed[node])
        if node.op == "input":
            read_bytes += count * node.dtype.bytes
            roots[node] = node
            continue
        row = OPS[node.op]
        if row.kind is OpKind.VIEW:
            made_of = frozenset([roots[a] for a in node.args])
            roots[node] = next(iter(made_of)) if len(made_of) == 1 else made_of
            continue
        roots[node] = node
        if node.op == "cast":
            continue
        operations = row.cost * count if row.kind is OpKind.POINTWISE else _operations(node, count, different, needed)
        # Slices of a scatter that have a place of their own are not added to anything.
        bounded = operations if node.dtype.is_float and row.kind is not OpKind.SCATTER else 0.0
        # Nodes that compute the same of the same tensors, seen through views, may be computed once: count the larger.
        signature = (node.op, node.dtype, *[roots[a] for a in node.args])
        if row.kind is OpKind.CONTRACT:
            written, held = [a.dtype for a in node.args], [narrow[a] for a in node.args]
            if node.dtype.name not in ("f32", "f64") or any(dtype.bytes < 4 for dtype in written):
                bounded = 0.0  # matrix units
            if not bounded:
                narrow_made[signature] = max(written, key=lambda dtype: dtype.bytes).name
            if all(dtype.bytes < 4 for dtype in held):
                bounded = 0.0
            if not bounded:
                multiplied[signature] = max(held, key=lambda dtype: dtype.bytes).name
            elif node.dtype.name == "f32":
                of_f32.add(signature)
        made = 2.0 * products(node) * needed[node] if row.kind is OpKind.CONTRACT else operations
        known = work.get(signature, (0.0, 0.0, 0.0))
        work[signature] = (max(known[0], operations), max(known[1], bounded), max(known[2], made))
    written_bytes = sum(o.node.bytes for o in graph.outputs)
    operations, bounded, made = (float(sum(counts[i] for counts in work.values())) for i in range(3))
    contracted = sum(counts[2] for (op, *_), counts in work.items() if op == "contract")
    f32_products = sum(work[signature][1] for signature in of_f32)

    def by_dtype(dtypes: Mapping[tuple[object, ...], str], place: int) -> tuple[tuple[str, float], ...]:
        products: dict[str, float] = {}
        for signature, dtype in dtypes.items():
            products[dtype] = products.get(dtype, 0.0) + work[signature][place]
        return tuple(sorted(products.items()))

    largest = max((o.node.elements for o in graph.outputs), default=0)
    return Traffic(
        read_bytes, written_bytes, operations, bounded, _pulled(graph), by_dtype(multiplied, 0), largest,
        _longest(graph), made, by_dtype(narrow_made, 2), contracted, f32_products,
    )  # fmt: skip


def _narrowest(graph: Graph) -> dict[Node, DType]:
    """By node, a dtype that holds all its values: the one before a cast to a wider dtype."""
    narrow: dict[Node, DType] = {}
    for node in graph.nodes:
        args = [narrow[a] for a in node.args]
        is_moved = node.op != "input" and OPS[node.op].kind is OpKind.VIEW and args
        was_cast = node.op == "cast" and node.dtype.holds(args[0])
        narrow[node] = max(args, key=lambda dtype: dtype.bytes) if is_moved or was_cast else node.dtype
    return narrow


def least_reads(graph: Graph) -> list[tuple[int, bool]]:
    """By input, the bytes that are read wherever the outputs are computed whole, whatever is computed besides, and
    whether all of its elements are needed."""
    needed = dict.fromkeys(graph.nodes, 0)
    for output in graph.outputs:
        needed[output.node] = output.node.elements
    for node in reversed(graph.nodes):
        for place, arg in enumerate(node.args):
            needed[arg] = max(needed[arg], min(_needed_by(node, place, needed[node]), arg.elements))
    reads = [(0, False)] * len(graph.inputs)
    for node, count in needed.items():
        if node.op == "input":
            position = node.attr("position", int)
            different = min(_addresses(graph.inputs[position]), node.elements)
            read = _read(node, different, count)
            reads[position] = read * node.dtype.bytes, count == node.elements
    return reads


def _read(node: Node, different: int, needed: int) -> int:
    """Elements of a node that are different and needed, at the least."""
    return max(different - (node.elements - needed), min(needed, 1))


def _operations(node: Node, count: int, different: dict[Node, int], needed: dict[Node, int]) -> float:
    """Arithmetic behind `count` elements of a node."""
    row = OPS[node.op]
    if row.kind is OpKind.CONTRACT:
        if any(different[a] < a.elements for a in node.args):
            return 2.0 * max(count, *(different[a] - (a.elements - needed[a]) for a in node.args))
        return 2.0 * products(node) * needed[node]
    if row.kind is OpKind.REDUCTION:
        operand = node.args[0]
        return max(different[operand] - (operand.elements - needed[operand]) - count, 0)
    if row.kind is OpKind.SCATTER:
        return float(needed[node.args[0]])
    return 0.0 if row.kind is OpKind.GATHER else row.cost * count


def _pulled(graph: Graph) -> float:
    """Operations without any sharing: how often each node is computed is the sum over its readers."""
    times = dict.fromkeys(graph.nodes, 0.0)
    for output in graph.outputs:
        times[output.node] += output.node.elements
    total = 0.0
    for node in reversed(graph.nodes):
        here, each = times[node], _terms(node)
        total += here * each * _cost(node)
        for arg in node.args:
            share = arg.elements / max(node.elements, 1) if node.op == "cat" else 1.0
            times[arg] = min(times[arg] + here * each * share, MOST_TIMES)
    return total


def _longest(graph: Graph) -> float:
    """Operations without any sharing behind one element, for the output of which that is most."""
    behind: dict[Node, float] = {}
    for node in graph.nodes:
        args = [behind[a] for a in node.args]
        each = _cost(node) + (max(args) if node.op == "cat" else sum(args))
        behind[node] = min(_terms(node) * each, MOST_BEHIND)
    return max((behind[o.node] for o in graph.outputs), default=0.0)


def _terms(node: Node) -> float:
    """Terms summed up for each element of a node; 1 where nothing is."""
    if node.op == "input":
        return 1.0
    match OPS[node.op].kind:
        case OpKind.REDUCTION:
            return node.args[0].elements / max(node.elements, 1)
        case OpKind.CONTRACT:
            return products(node)
        case OpKind.SCATTER:
            return node.args[1].elements
        case _:
            return 1.0


def _cost(node: Node) -> float:
    """Operations for each term of a node: a load, or arithmetic."""
    if node.op == "input":
        return 1.0
    row = OPS[node.op]
    return 0.0 if row.kind is OpKind.VIEW else 2.0 if row.kind is OpKind.CONTRACT else row.cost


def _different(graph: Graph) -> dict[Node, int]:
    """By node, how many different values its elements can have, counted low: broadcasts add none, a gather or a slice
    may leave few."""
    different: dict[Node, int] = {}
    for node in graph.nodes:
        args = [different[a] for a in node.args]
        n = node.elements
        if node.op == "input":
            n = _addresses(graph.inputs[node.attr("position", int)])
        else:
            match OPS[node.op].kind:
                case OpKind.POINTWISE:
                    n = max(args, default=1)
                case OpKind.VIEW:
                    n = _different_in_view(node, args)
                case OpKind.REDUCTION:
                    # Distinct operand elements make up at least so many distinct rows.
                    n = -(-args[0] * n // node.args[0].elements) if node.args[0].elements else min(n, 1)
                case OpKind.GATHER | OpKind.SCATTER:
                    n = 1
                case OpKind.CONTRACT:
                    whole = all(d == a.elements for d, a in zip(args, node.args, strict=True))
                    n = n if whole else 1
                case OpKind.SCAN:
                    n = args[0]
                case OpKind.RANDOM | OpKind.INPUT:
                    pass
        different[node] = min(n, node.elements)
    return different


def _different_in_view(node: Node, args: list[int]) -> int:
    match node.op:
        case "full":
            return 1
        case "iota":
            return 1
        case "slice":
            return max(args[0] - (node.args[0].elements - node.elements), 1)
        case "pad":
            removed = node.args[0].elements - _kept_by_pad(node)
            return max(args[0] - removed, 1)
        case _:
            return max(args, default=1)


def _kept_by_pad(node: Node) -> int:
    """Elements of a pad's operand that are in the result: all but those that negative widths crop."""
    low, high = node.ints("low"), node.ints("high")
    return prod(max(n + min(a, 0) + min(b, 0), 0) for n, a, b in zip(node.args[0].sizes, low, high, strict=True))


def _addresses(spec: InputSpec) -> int:
    """Elements of an input at addresses of their own: axes of stride 0 repeat."""
    return prod(n for n, s in zip(spec.sizes, spec.strides, strict=True) if s or n == 0)


def _needed(graph: Graph) -> dict[Node, int]:
    """By node, a lower bound on the number of its elements that some output depends on."""
    needed = dict.fromkeys(graph.nodes, 0)
    # Axes such that every combination of their positions is needed: what a gather or a broadcast lets through.
    whole: dict[Node, Axes] = dict.fromkeys(graph.nodes, frozenset[int]())
    volumes = dict.fromkeys(graph.nodes, 1)  # of those axes
    slices: dict[Node, list[Node]] = {}
    for output in graph.outputs:
        needed[output.node] = output.node.elements
        whole[output.node], volumes[output.node] = frozenset(range(output.node.rank)), output.node.elements
    for node in reversed(graph.nodes):
        if node in slices:
            needed[node] = max(needed[node], _apart([s for s in slices[node] if needed[s] == s.elements]))
        if needed[node]:
            needed[node] = max(needed[node], volumes[node])
        if node.op == "slice":
            slices.setdefault(node.args[0], []).append(node)
        for place, arg in enumerate(node.args):
            if needed[arg] == volumes[arg] == arg.elements:
                continue  # all of it is
            needed[arg] = max(needed[arg], min(_needed_by(node, place, needed[node]), arg.elements))
            if needed[node]:
                axes = _whole_by(node, place, whole[node])
                volume = prod([arg.sizes[d] for d in axes])
                if volume > volumes[arg]:
                    whole[arg], volumes[arg] = axes, volume
                if whole[arg]:
                    needed[arg] = max(needed[arg], volumes[arg])
    return needed


Axes = frozenset[int]


def _apart(slices: list[Node]) -> int:
    """Lower bound on the elements that slices of one node have together: all, where no two have any in common; else
    those of the largest."""
    boxes = [list(zip(s.ints("start"), s.ints("stop"), strict=True)) for s in slices]
    for one, other in combinations(boxes, 2):
        if all(a < d and c < b for (a, b), (c, d) in zip(one, other, strict=True)):
            return max(s.elements for s in slices)
    return sum(s.elements for s in slices)


def _whole_by(node: Node, place: int, axes: Axes) -> Axes:
    """Axes of operand `place` that are needed whole where those of the node are."""
    kind = OPS[node.op].kind
    if kind is OpKind.POINTWISE:
        return axes
    arg = node.args[place]
    if len(axes) == node.rank and _needed_by(node, place, node.elements) >= arg.elements:
        return frozenset(range(arg.rank))
    match kind:
        case OpKind.SCAN:
            return axes
        case OpKind.REDUCTION:
            reduced = reduced_axes(node)
            kept = [d for d in range(arg.rank) if d not in reduced]
            return frozenset(reduced) | {d for i, d in enumerate(kept) if i in axes}
        case OpKind.SCATTER if place == 0:
            return axes if node.attr("axis", int) in axes else frozenset()
        case OpKind.GATHER if place == 0:
            return axes - {node.attr("axis", int)} if node.rank == arg.rank else frozenset()
        case _:
            pass
    if node.op not in ("broadcast_in_dim", "expand", "permute", "squeeze"):
        return frozenset()
    (axis_map,) = axis_maps_of(node)
    return frozenset(i for i, s in enumerate(axis_map) if s is not None and (s.axis in axes or not s.step))


def _needed_by(node: Node, place: int, n: int) -> int:
    """Elements of operand `place` that n elements of the node need."""
    if not n:
        return 0
    arg = node.args[place]
    match OPS[node.op].kind:
        case OpKind.POINTWISE:
            return n
        case OpKind.VIEW:
            match node.op:
                case "broadcast_in_dim" | "expand":
                    return -(-n * arg.elements // node.elements)
                case "pad":
                    return max(n - (node.elements - _kept_by_pad(node)), 0)
                case "cat":
                    return max(n - (node.elements - arg.elements), 0)
                case _:
                    return n
        case OpKind.REDUCTION:
            return n * (arg.elements // node.elements)
        case OpKind.SCAN:
            return n
        case OpKind.CONTRACT:
            return arg.elements if n == node.elements else 0
        case OpKind.GATHER:
            return 0 if place == 0 else min(n, arg.elements) if arg.elements == node.elements else 1
        case OpKind.SCATTER:  # slices that lie outside are read nowhere: all of them count as inside
            return arg.elements if place or n == node.elements else 0
        case OpKind.RANDOM | OpKind.INPUT:
            return 0
