"""nvFuser's scalars, and the dtype in which its ops compute: rules of its own, not PyTorch's.

add(half, half) -> Float           halves are computed in Float, and stay so until they are cast back
neg(half) -> Half                  what only copies, or changes a sign, keeps its operand's dtype
mul(float[4, 5], double[]) -> Double    a tensor without axes promotes as any other
mul(float, 0.5) -> Float           a number counts where its category is above every tensor's,
mul(int, 0.5) -> Double            and is a Double, an Int or a Bool unless `define_scalar` says otherwise
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fusion_ir import building as build
from fusion_ir.arithmetic.conversions import round_to
from fusion_ir.building.operands import promote
from fusion_ir.core.graph import topological
from fusion_ir.core.node import Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DType, bool_, f32, f64, i64
from fusion_ir.reference.node_value import evaluate_node

_CATEGORY = {"bool": 0, "uint": 1, "int": 1, "float": 2}


@dataclass(frozen=True, slots=True)
class Number:
    """A scalar: a constant of the text, or computed from such. `value` is one of `dtype`."""

    value: int | float | bool
    dtype: DType


Given = Node | Number


def number(value: int | float | bool) -> Number:
    """A Python number as nvFuser takes it."""
    if isinstance(value, bool):
        return Number(value, bool_)
    return Number(value, i64 if isinstance(value, int) else f64)


def cast_number(given: Number, dtype: DType) -> Number:
    """The number in another dtype, as `cast` has it."""
    return _number_of(round_to(Scalar.of(given.value, given.dtype).array(), dtype), dtype)


def common(given: Sequence[Given], halves: bool = False) -> DType:
    """The dtype in which operands meet; `halves`: 16 bits stay 16 bits. Raises RuleError without operands."""
    tensors = [x.dtype for x in given if isinstance(x, Node)]
    numbers = [x.dtype for x in given if isinstance(x, Number)]
    dtype = promote(tensors or numbers)
    if tensors and numbers:
        above = promote(f32 if x.is_float and x.bytes < f32.bytes else x for x in numbers)
        dtype = above if _CATEGORY[above.kind] > _CATEGORY[dtype.kind] else dtype
    return f32 if dtype.is_float and dtype.bytes < f32.bytes and not halves else dtype


def floating(given: Sequence[Given]) -> DType:
    """`common`, and Float for integers and bool."""
    dtype = common(given)
    return dtype if dtype.is_float else f32


def kept(given: Sequence[Given]) -> DType:
    """The dtype of the first operand."""
    return given[0].dtype


def unwidened(given: Sequence[Given]) -> DType:
    """`common`, halves included."""
    return common(given, halves=True)


def applied(function: Callable[..., Node], given: Sequence[Given], dtype: DType) -> Given:
    """`function` of the operands, all of them in `dtype`; of numbers alone a number."""
    tensors = any(isinstance(x, Node) for x in given)
    operands = [build.cast(x, dtype) if isinstance(x, Node) else _entering(x, dtype, tensors) for x in given]
    result = function(*operands)
    return result if tensors else folded(result)


def _entering(given: Number, dtype: DType, beside_tensors: bool) -> Node | int | float | bool:
    """A number beside tensors is not rounded to their dtype: `build` rounds it to where it computes."""
    if beside_tensors and given.dtype.is_float and dtype.is_float:
        return given.value
    value = cast_number(given, dtype).value
    return value if beside_tensors else build.full((), value, dtype)


def folded(node: Node) -> Number:
    """The value of a node that depends on constants alone, and has one element."""
    values: dict[Node, np.ndarray] = {}
    for n in topological((node,)):
        values[n] = evaluate_node(n, [values[a] for a in n.args])
    return _number_of(values[node], node.dtype)


def _number_of(array: np.ndarray, dtype: DType) -> Number:
    return Number(Scalar(dtype, int.from_bytes(array.tobytes(), "little")).value, dtype)
