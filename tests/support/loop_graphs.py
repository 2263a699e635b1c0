"""Graphs for the loop families on CUDA: odd shapes, strides and alignments; and every dtype."""

from itertools import product

from fusion_ir import building as B
from fusion_ir.core.graph import Graph, InputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, bf16, f16, f32, f64, i8, i32
from fusion_ir.ops import make
from testing.tensors import graph_of, spec


def columns(*nodes: Node) -> list[Node]:
    return [B.sum_(x, 0) for x in nodes]


def softmax_backward(y: Node, dy: Node) -> Node:
    return B.mul(y, B.sub(dy, B.sum_(B.mul(dy, y), -1, keepdims=True)))


def batch_norm(x: Node) -> Node:
    mean, var = B.mean(x, (0, 2), keepdims=True), B.var(x, (0, 2), 0, keepdims=True)
    return B.mul(B.sub(x, mean), B.rsqrt(B.add(var, 1e-5)))


def norm_backward(x: Node, dy: Node, rows: int) -> list[Node]:
    """With sums down the columns of every `rows` rows."""
    sums = [B.sum_(B.reshape(y, (x.sizes[0] // rows, rows, x.sizes[1])), 1) for y in (dy, B.mul(dy, x))]
    return [B.sub(dy, B.mul(x, B.mean(B.mul(dy, x), -1, keepdims=True))), *sums]


def heads(x: Node, scale: Node) -> list[Node]:
    """Sums over few heads, beside what is computed of each."""
    return [B.mul(x, B.broadcast_in_dim(scale, x.sizes, (3,))), B.sum_(x, 2)]


def turned(x: Node, y: Node) -> list[Node]:
    total = B.add(x, make("permute", [y], {"dims": (1, 0)}))
    return [total, B.neg(make("permute", [total], {"dims": (1, 0)}))]


def channels_last(x: Node) -> Node:
    return B.relu(make("permute", [x], {"dims": (0, 2, 1)}))


def misaligned(s: InputSpec) -> InputSpec:
    return InputSpec(s.shape, s.dtype, s.strides, s.dtype.bytes)


REDUCTIONS: dict[str, Graph] = {
    "row sums": graph_of([spec((37, 1000), f32)], lambda x: B.sum_(x, 1)),
    "row sums of bf16, odd": graph_of([spec((13, 515), bf16)], lambda x: B.sum_(x, 1)),
    "long rows": graph_of([spec((3, 9001), f32)], lambda x: B.max_(B.abs_(x), 1)),
    "everything": graph_of([spec((31, 77), f64)], lambda x: B.sum_(x, (0, 1))),
    "column sums": graph_of([spec((67, 300), f32), spec((67, 300), f32)], columns),
    "column sums of bf16, odd": graph_of([spec((67, 77), bf16)], lambda x: B.max_(x, 0)),
    "rows and columns": graph_of([spec((48, 96), f32)], lambda x: [B.sum_(x, 1), B.max_(x, 0)]),
    "channels": graph_of([spec((6, 5, 42), f32)], lambda x: B.sum_(x, (0, 2))),
    "integers": graph_of([spec((20, 333), i8)], lambda x: B.sum_(x, 1)),
    "argmax": graph_of([spec((9, 260), f32)], lambda x: B.argmax(x, 1)),
    "argmax down": graph_of([spec((260, 9), bf16)], lambda x: B.argmax(x, 0)),
    "misaligned": graph_of([misaligned(spec((24, 256), f32))], lambda x: B.sum_(B.exp(x), 1)),
    "strided rows": graph_of([InputSpec(spec((24, 100), f32).shape, f32, (102, 1), 8)], lambda x: B.sum_(x, 1)),
    "heads": graph_of([spec((3, 5, 4, 40), bf16), spec((40,), bf16)], heads),
    "all at most": graph_of([spec((16, 130), i32)], lambda x: B.any_(B.lt(x, 0), 1)),
}
NORMS: dict[str, Graph] = {
    "softmax": graph_of([spec((33, 1024), f32)], B.softmax),
    "softmax of f16, odd": graph_of([spec((9, 1023), f16)], B.softmax),
    "long softmax": graph_of([spec((2, 6000), bf16)], B.softmax),
    "layer norm": graph_of([spec((10, 768), bf16), spec((768,), bf16)], lambda x, w: B.layer_norm(x, -1, w)),
    "softmax backward": graph_of([spec((17, 200), f32), spec((17, 200), f32)], softmax_backward),
    "batch norm": graph_of([spec((7, 3, 50), f32)], batch_norm),
    "norm backward": graph_of([spec((48, 520), bf16), spec((48, 520), bf16)], lambda x, dy: norm_backward(x, dy, 12)),
    "softmax down columns": graph_of([spec((40, 33), f32)], lambda x: B.softmax(x, 0)),
    "misaligned": graph_of([misaligned(spec((24, 256), bf16))], B.softmax),
}
TRANSPOSES: dict[str, Graph] = {
    "both ways": graph_of([spec((100, 77), f32), spec((77, 100), f32)], turned),
    "bf16": graph_of([spec((64, 200), bf16), spec((200, 64), bf16)], turned),
    "f64, misaligned": graph_of([misaligned(spec((33, 66), f64)), spec((66, 33), f64)], turned),
    "channels last": graph_of([spec((3, 40, 49), f16)], channels_last),
    "bytes": graph_of([spec((72, 88), i8)], lambda x: make("permute", [x], {"dims": (1, 0)})),
}
THIN: dict[str, Graph] = {
    "one vector": graph_of([spec((70, 1000), f32), spec((1000,), f32)], B.matmul),
    "three rows": graph_of([spec((3, 257), bf16), spec((130, 257), bf16)], B.linear),
    "three columns": graph_of([spec((3, 257), f32), spec((257, 130), f32)], B.matmul),
    "five columns of functions": graph_of(
        [spec((5, 256), f32), spec((256, 130), f32)], lambda x, w: B.tanh(B.matmul(B.tanh(x), B.tanh(w)))
    ),
}


def of_every_dtype() -> dict[str, Graph]:
    """Sums, extremes and positions along rows and down columns, norms, products and transposes, of each dtype that has
    them."""
    found: dict[str, Graph] = {}
    for dtype in DTYPES.values():
        ops = ("any", "all") if dtype.kind == "bool" else ("sum", "max", "prod")
        for op, axis in product(ops, (0, 1)):
            found[f"{op} {axis} of {dtype.name}"] = graph_of(
                [spec((20, 72), dtype)], lambda x, op=op, axis=axis: make(op, [x], {"axes": (axis,)})
            )
        if dtype.kind != "bool":
            found[f"argmin of {dtype.name}"] = graph_of([spec((20, 72), dtype)], lambda x: B.argmin(x, 1))
        if dtype.is_float and dtype.bytes > 1:
            found[f"softmax of {dtype.name}"] = graph_of([spec((20, 72), dtype)], B.softmax)
        if dtype.kind != "bool":  # square enough for tiles, and with few rows
            for name, rows in (("product", 24), ("thin product", 2)):
                found[f"{name} of {dtype.name}"] = graph_of([spec((rows, 72), dtype), spec((72, 80), dtype)], B.matmul)
        found[f"transpose of {dtype.name}"] = graph_of(
            [spec((40, 72), dtype)], lambda x: make("permute", [x], {"dims": (1, 0)})
        )
    return found
