"""The row of an op in the table `OPS`: kind, rules, reference, C++ expression, error and cost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

import numpy as np

from fusion_ir.core.extent import Shape
from fusion_ir.core.node import Attr, Node
from fusion_ir.dtype import DType
from fusion_ir.ops.axis_maps import AxisMaps

AttrKind = Literal["int", "ints", "bool", "str", "dtype", "scalar", "shape", "axis", "axes"]


class OpKind(StrEnum):
    """The kind of computation that an op is; kernel families decide by it which ops they accept."""

    INPUT = "input"
    POINTWISE = "pointwise"  # out[i] = f(a[i], b[i], ...), all of one shape
    VIEW = "view"  # out[i] = a[map(i)], or a constant, or a function of i alone
    REDUCTION = "reduction"
    SCAN = "scan"
    GATHER = "gather"  # out[i] = a[... index[i] ...]
    SCATTER = "scatter"  # out[... m ...] = sum of a[... i ...] with index[i] = m
    CONTRACT = "contract"
    RANDOM = "random"


class RuleError(ValueError):
    """An op was given operands or attributes that its rules reject; the message gives expected and actual."""


@dataclass(frozen=True)
class Op:
    """One op.

    dtype, shape:  rules over (args, attrs); raise RuleError. Pointwise operands have equal shapes: there is no implicit
                   broadcasting in the language (readers and `fusion_ir.building` insert `broadcast_in_dim`).
    reference:     (node, *arrays) -> array. Pointwise ops get their operands widened to the compute dtype and the
                   interpreter rounds what they return to the node's dtype; other ops get the operands as they are.
    cpp:           pointwise only: the value over `Vec<T, W>` with {0}, {1}, ... for the operands, in the vocabulary of
                   codegen/include/vec_*.h; T is the compute dtype of the operands.
    ulps:          largest error in units of the last place of the *compute* dtype against the exact value;
                   0: bit for bit.
    cost:          arithmetic per element, in f32 additions.
    domain:        interval from which tests draw operands.
    zero_signs:    operands of which a zero's sign makes a difference to the value: 1 / -0.0 is not 1 / 0.0.
    axis_maps:     views of operands only: for each operand, which axis of the view each of its axes is.
    """

    name: str
    kind: OpKind
    doc: str
    arity: int | tuple[int, int]  # exact, or (least, most)
    dtype: Callable[[Sequence[Node], Mapping[str, Attr]], DType]
    shape: Callable[[Sequence[Node], Mapping[str, Attr]], Shape]
    reference: Callable[..., np.ndarray]
    attrs: Mapping[str, AttrKind] = field(default_factory=dict[str, AttrKind])
    cpp: str = ""
    ulps: float = 0.0
    cost: float = 1.0
    commutative: bool = False
    domain: tuple[float, float] = (-4.0, 4.0)
    zero_signs: tuple[int, ...] = ()
    axis_maps: AxisMaps | None = None
