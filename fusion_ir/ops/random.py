"""Random numbers are pure: a function of seed, offset, stream and linear index."""

import numpy as np

from fusion_ir.arithmetic.philox import uniform
from fusion_ir.core.extent import Shape
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, f32, i64
from fusion_ir.ops.row import Op, OpKind, RuleError
from fusion_ir.ops.rules import Args, Attrs, shape_attr


def _dtype(args: Args, attrs: Attrs) -> DType:
    for name, arg in zip(("seed", "offset"), args, strict=True):
        if arg.dtype != i64 or arg.rank:
            raise RuleError(f"{name} must be i64 of rank 0, got {arg.dtype}{list(arg.sizes)}")
    return f32


def _shape(args: Args, attrs: Attrs) -> Shape:
    return shape_attr(attrs)


def _uniform(node: Node, seed: np.ndarray, offset: np.ndarray) -> np.ndarray:
    return uniform(int(seed), int(offset), node.attr("stream", int), node.elements).reshape(node.sizes)


RANDOM: tuple[Op, ...] = (
    Op("uniform", OpKind.RANDOM, "f32 in [0, 1): Philox4x32-10 of the linear index, see arithmetic.philox", 2, _dtype,
       _shape, _uniform, attrs={"shape": "shape", "stream": "int"}, cost=30, domain=(0.0, 1024.0)),
)  # fmt: skip
