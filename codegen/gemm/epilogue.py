"""Epilogues of library calls: a scale, a matrix added and a vector added to a product before it is stored.

cast(contract(x, w) * 2 + y + b)    ->    scale 2, added y and b; the product is stored through views alone

The library sums in the accumulator's dtype and rounds the result once. So does the graph where nothing between the
contraction and the store is rounded before the last step. A relu is left to kernels: cuBLASLt has one, and it makes 0
of NaN (cuBLASLt 13.1 on an H200), where ours and a framework's keep it.
"""

from dataclasses import dataclass, replace
from math import inf, isfinite

from codegen.gemm.dims import Digit, Matrix, stored_operand
from codegen.kernel import Reject
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node, intern
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DType
from fusion_ir.ops import OPS, OpKind


@dataclass(frozen=True)
class Added:
    """factor * a stored tensor, added to the product. digits: of the product's row-major number, with the tensor's
    strides."""

    matrix: Matrix
    digits: tuple[Digit, ...]
    dtype: DType
    factor: float


@dataclass(frozen=True)
class Epilogue:
    """scale * product + added. `graph` stores the product itself where the given one stores the result."""

    graph: Graph
    scale: float = 1.0
    added: tuple[Added, ...] = ()


def epilogue_of(graph: Graph, product: Node) -> Epilogue | Reject:
    """The epilogue between the contraction `product` and the only output, or why no library call has it."""
    if len(graph.outputs) != 1:
        return Reject("writes several tensors")
    (output,) = graph.outputs
    acc = product.attr("acc", DType)
    found = Epilogue(graph)
    node, bare = product, product  # bare: the product behind the same views, with nothing computed of it
    while node is not output.node:
        readers = [n for n in graph.nodes if node in n.args]
        if len(readers) != 1 or readers[0].args.count(node) != 1:
            return Reject(f"{node.op} is read more than once behind the product")
        (reader,) = readers
        if reader.op in OPS and OPS[reader.op].kind is OpKind.VIEW and len(reader.args) == 1:
            bare = intern(reader.op, (bare,), dict(reader.attrs), reader.shape, bare.dtype)
        elif reader.op == "relu":
            return Reject("relu behind the product: cuBLASLt's relu makes 0 of NaN")
        elif reader.op == "cast":
            if node.dtype != acc or not reader.dtype.is_float:
                return Reject(f"is cast from {node.dtype} to {reader.dtype} behind the product")
        elif node.dtype != acc:
            return Reject(f"{reader.op} of the product rounded to {node.dtype}; the library rounds at the end alone")
        else:
            step = _arithmetic(graph, reader, node, found, moved=bare is not product)
            if isinstance(step, Reject):
                return step
            found = step
        node = reader
    return replace(found, graph=Graph(graph.inputs, (OutputSpec(bare, output.strides),)))


def _arithmetic(graph: Graph, reader: Node, node: Node, found: Epilogue, moved: bool) -> Epilogue | Reject:
    """`found` with one more multiplication by a constant or addition of a tensor."""
    if reader.op not in ("add", "mul"):
        return Reject(f"{reader.op} is none of the library's epilogues")
    other = reader.args[1] if reader.args[0] is node else reader.args[0]
    if reader.op == "mul":
        factor = _constant(other)
        if factor is None or found.added or found.scale != 1.0:
            return Reject("the library scales by one constant, before anything is added")
        return replace(found, scale=factor)
    if moved:
        return Reject("a tensor is added behind a view of the product")
    added = _added(graph, other)
    return added if isinstance(added, Reject) else replace(found, added=(*found.added, added))


def _added(graph: Graph, node: Node) -> Added | Reject:
    factor = 1.0
    if node.op == "mul":
        constants = [_constant(arg) for arg in node.args]
        given = [c for c in constants if c is not None]
        if len(given) != 1:
            return Reject("what is added is computed, not stored")
        (factor,) = given
        node = node.args[0] if constants[0] is None else node.args[1]
    bare = without_casts(node)
    stored = stored_operand(graph, bare)
    if isinstance(stored, Reject):
        return Reject(f"what is added {stored.reason}")
    matrix, digits = stored
    return Added(matrix, tuple(digits), bare.dtype, factor)


def without_casts(node: Node) -> Node:
    """A view of a tensor without the casts on its way, which change no value as long as they widen."""
    if node.op == "cast" and node.args[0].dtype.is_float and node.args[0].dtype.bytes < node.dtype.bytes:
        return without_casts(node.args[0])
    if len(node.args) != 1 or node.op == "pad" or OPS[node.op].kind is not OpKind.VIEW:
        return node
    arg = without_casts(node.args[0])
    return node if arg is node.args[0] else intern(node.op, (arg,), dict(node.attrs), node.shape, arg.dtype)


def _constant(node: Node) -> float | None:
    """The value of a tensor of one finite constant."""
    while node.op in ("broadcast_in_dim", "expand", "reshape", "permute"):
        (node,) = node.args
    value = float(node.attr("value", Scalar).value) if node.op == "full" else inf
    return value if isfinite(value) else None
