"""The ops of the language: one table, `OPS`, and `make`, the only way to a node."""

from collections.abc import Mapping, Sequence

from fusion_ir.core.extent import Extent
from fusion_ir.core.graph import InputSpec
from fusion_ir.core.node import Attr, Node, intern
from fusion_ir.core.node_quota import count
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DType
from fusion_ir.errors import counted
from fusion_ir.ops.axis_maps import AxisMap
from fusion_ir.ops.contract import CONTRACTS
from fusion_ir.ops.indexing import INDEXING
from fusion_ir.ops.pointwise import POINTWISE
from fusion_ir.ops.random import RANDOM
from fusion_ir.ops.reductions import REDUCTIONS
from fusion_ir.ops.row import AttrKind, Op, OpKind, RuleError
from fusion_ir.ops.scattering import SCATTERING
from fusion_ir.ops.views import VIEWS

__all__ = [
    "OPS",
    "Op",
    "OpKind",
    "RuleError",
    "axis_maps_of",
    "kept_axes",
    "kind_of",
    "make",
    "make_input",
    "reduced_axes",
]

OPS: dict[str, Op] = {
    row.name: row for row in (*POINTWISE, *VIEWS, *REDUCTIONS, *INDEXING, *CONTRACTS, *RANDOM, *SCATTERING)
}

_KIND_WORDS: dict[AttrKind, str] = {
    "int": "an integer",
    "ints": "integers",
    "bool": "true or false",
    "str": "a string",
    "dtype": "a dtype",
    "scalar": "a constant",
    "shape": "extents",
    "axis": "an axis, 0 or more",
    "axes": "axes, 0 or more, each once and in increasing order",
}


def make(op: str, args: Sequence[Node], attrs: Mapping[str, Attr] | None = None) -> Node:
    """The node `op(args; attrs)`, checked by the op's rules. Raises RuleError, KeyError for an unknown op,
    FormatError for one too many within `node_quota.limited`."""
    row = OPS[op]
    count(len(args))
    attrs = dict(attrs or {})
    least, most = row.arity if isinstance(row.arity, tuple) else (row.arity, row.arity)
    if not least <= len(args) <= most:
        expected = counted(least, "operand") if least == most else f"{least} to {most} operands"
        raise RuleError(f"{op} takes {expected}, got {len(args)}")
    if attrs.keys() != row.attrs.keys():
        raise RuleError(f"{op} takes attributes {sorted(row.attrs)}, got {sorted(attrs)}")
    for name, kind in row.attrs.items():
        if not _is_kind(attrs[name], kind):
            raise RuleError(f"{op}: attribute {name} must be {_KIND_WORDS[kind]}, got {_shown(attrs[name])}")
    try:
        shape, dtype = row.shape(args, attrs), row.dtype(args, attrs)
    except RuleError as error:
        raise RuleError(f"{op}: {error}") from None
    return intern(op, tuple(args), attrs, shape, dtype)


def kind_of(node: Node) -> OpKind:
    """The kind of a node's op; of inputs, which have no row, too."""
    return OpKind.INPUT if node.op == "input" else OPS[node.op].kind


def reduced_axes(node: Node) -> tuple[int, ...]:
    """The axes of its operand that a reduction sums, or searches, over."""
    return node.ints("axes") if "axes" in OPS[node.op].attrs else (node.attr("axis", int),)


def axis_maps_of(node: Node) -> tuple[AxisMap, ...]:
    """For each operand of a view, which axis of the view each of its axes is; () for other ops."""
    row = OPS.get(node.op)
    return row.axis_maps(node) if row is not None and row.axis_maps is not None else ()


def kept_axes(view: Node) -> tuple[dict[int, int], ...]:
    """For each operand of a view, its axes by those of the view that have the same elements in the same order."""
    return tuple(
        {
            source.axis: axis
            for axis, source in enumerate(axis_map)
            if source is not None
            and source.axis is not None
            and source.start == 0
            and (source.step == 1 or operand.sizes[axis] == 1)
            and operand.sizes[axis] == view.sizes[source.axis]
        }
        for operand, axis_map in zip(view.args, axis_maps_of(view), strict=True)
    )


def make_input(position: int, spec: InputSpec) -> Node:
    """The node of input `position`."""
    attrs: dict[str, Attr] = {
        "position": position,
        "strides": spec.strides,
        "alignment_bytes": spec.alignment_bytes,
        "constant": spec.constant,
    }
    return intern("input", (), attrs, spec.shape, spec.dtype)


def _shown(value: Attr) -> str:
    return str([*value]) if isinstance(value, tuple) else repr(value)


def _is_kind(value: Attr, kind: AttrKind) -> bool:
    """Whether an attribute's value has the kind that its row names. Axes are non-negative, distinct and sorted."""

    def all_of(kind_: type) -> bool:
        return isinstance(value, tuple) and all(type(v) is kind_ for v in value)

    match kind:
        case "int":
            return type(value) is int
        case "bool":
            return type(value) is bool
        case "str":
            return isinstance(value, str)
        case "dtype":
            return isinstance(value, DType)
        case "scalar":
            return isinstance(value, Scalar)
        case "shape":
            return all_of(Extent)
        case "ints":
            return all_of(int)
        case "axis":
            return type(value) is int and value >= 0
        case "axes":
            return all_of(int) and all(int(v) >= 0 for v in value) and list(value) == sorted(set(value))  # type: ignore
