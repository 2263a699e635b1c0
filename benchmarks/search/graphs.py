"""Graphs on which the search's own cost is measured: stacks of transformer layers, parallel chains, diamonds.

layers 12           heterogeneous: widths, heads, norms, gates and biases differ from layer to layer
layers 12 alike     the same layer again and again
chains 32           parallel chains of eight steps that share one operand
diamonds 16         a value read by two steps that a third joins, again and again
butterflies 4       each of eight columns is mixed with another, in stages: every value has two readers
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import fusion_ir.building as ir
from benchmarks.corpus.case import Inputs
from benchmarks.corpus.rope_parts import rotate
from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16
from fusion_ir.verify import verify

TOKENS = 2048
STEPS = 8  # of a chain
COLUMNS = 8  # of butterflies


@dataclass(frozen=True)
class Layer:
    """Sizes and spellings of one transformer layer. groups: heads of keys and values."""

    width: int = 2048
    heads: int = 16
    groups: int = 16
    hidden: int = 8192
    rms: bool = True
    gated: bool = True
    bias: bool = False

    @property
    def size(self) -> int:
        """Columns of one head."""
        return self.width // self.heads


def layers(count: int, *, alike: bool = False, seed: int = 0) -> Graph:
    """Transformer layers one after the other; where the width changes, a product takes the residual to the next."""
    inputs, draw = Inputs(bf16), random.Random(seed)
    kinds = [Layer() if alike else _drawn(draw) for _ in range(count)]
    x = inputs(TOKENS, kinds[0].width)
    for kind in kinds:
        if x.sizes[1] != kind.width:
            x = ir.matmul(x, inputs(x.sizes[1], kind.width))
        x = ir.add(x, _attention(inputs, kind, _norm(inputs, kind, x)))
        x = ir.add(x, _mlp(inputs, kind, _norm(inputs, kind, x)))
    return _graph(inputs, x)


def chains(count: int) -> Graph:
    """Parallel chains of eight steps each, maxima over rows among them; all read one operand besides their own."""
    inputs = Inputs(bf16)
    shared = inputs(TOKENS, 1)
    outputs: list[Node] = []
    for chain in range(count):
        x = inputs(TOKENS, 512 + 64 * (chain % 4))
        for step in range(STEPS):
            x = _STEPS[(step + chain) % len(_STEPS)](x, shared)
        outputs.append(x)
    return _graph(inputs, *outputs)


def diamonds(count: int) -> Graph:
    """Diamonds one after the other: both sides of each read one value; every fourth joins by a mean over rows."""
    inputs = Inputs(bf16)
    x = inputs(TOKENS, 1024)
    for i in range(count):
        left, right = ir.exp(x), ir.tanh(ir.mul(x, inputs(1024)))
        x = ir.mul(left, right) if i % 4 else ir.mul(left, ir.mean(right, -1, keepdims=True))
    return _graph(inputs, x)


def butterflies(stages: int) -> Graph:
    """The flow of a fast Fourier transform: in stage s, columns i and i ^ 2^s mix."""
    inputs = Inputs(bf16)
    columns = [inputs(TOKENS, 512) for _ in range(COLUMNS)]
    for stage in range(stages):
        other = [columns[i ^ 1 << stage % 3] for i in range(COLUMNS)]
        mixed = (ir.add, ir.sub)
        columns = [mixed[i >> stage % 3 & 1](x, y) for i, (x, y) in enumerate(zip(columns, other, strict=True))]
    return _graph(inputs, *columns)


GRAPHS: Mapping[str, Callable[[], Graph]] = {
    **{f"layers {n}": lambda n=n: layers(n) for n in (12, 24, 50, 100)},
    **{f"layers {n} alike": lambda n=n: layers(n, alike=True) for n in (12, 24, 50, 100)},
    **{f"chains {n}": lambda n=n: chains(n) for n in (8, 32)},
    **{f"diamonds {n}": lambda n=n: diamonds(n) for n in (8, 32)},
    **{f"butterflies {n}": lambda n=n: butterflies(n) for n in (3, 6)},
}


def _drawn(draw: random.Random) -> Layer:
    heads = draw.choice((8, 12, 16, 20))
    width = heads * draw.choice((64, 128))
    return Layer(
        width,
        heads,
        heads // draw.choice((1, 2, 4)),
        width * draw.choice((2, 3, 4)),
        *(draw.random() < 0.5 for _ in "abc"),
    )


def _norm(inputs: Inputs, kind: Layer, x: Node) -> Node:
    if kind.rms:
        return ir.rms_norm(x, -1, inputs(kind.width))
    return ir.layer_norm(x, -1, inputs(kind.width), inputs(kind.width) if kind.bias else None)


def _linear(inputs: Inputs, kind: Layer, x: Node, columns: int) -> Node:
    product = ir.matmul(x, inputs(x.sizes[1], columns))
    return ir.add(product, inputs(columns)) if kind.bias else product


def _attention(inputs: Inputs, kind: Layer, x: Node) -> Node:
    """Rotary positions, grouped heads, a causal mask given."""
    size, share = kind.size, kind.heads // kind.groups
    cos, sin = (ir.cast(inputs(TOKENS, size), inputs.wide) for _ in range(2))

    def projected(heads: int) -> Node:
        rows = ir.reshape(_linear(inputs, kind, x, heads * size), [TOKENS, heads, size])
        return ir.permute(rows, (1, 0, 2))

    def shared(part: Node) -> Node:
        """For each head the part of its group."""
        wide = ir.expand(ir.unsqueeze(part, 1), [kind.groups, share, TOKENS, size])
        return ir.reshape(wide, [kind.heads, TOKENS, size])

    q = rotate(projected(kind.heads), cos, sin, inputs.dtype)
    k = shared(rotate(projected(kind.groups), cos, sin, inputs.dtype))
    v = shared(projected(kind.groups))
    scores = ir.mul(ir.matmul(q, ir.transpose(k), inputs.wide), size**-0.5)
    mask = ir.cast(inputs(TOKENS, TOKENS), inputs.wide)
    mixed = ir.matmul(ir.cast(ir.softmax(ir.add(scores, mask)), inputs.dtype), v)
    return _linear(inputs, kind, ir.reshape(ir.permute(mixed, (1, 0, 2)), [TOKENS, kind.width]), kind.width)


def _mlp(inputs: Inputs, kind: Layer, x: Node) -> Node:
    up = _linear(inputs, kind, x, kind.hidden)
    inner = ir.mul(ir.silu(_linear(inputs, kind, x, kind.hidden)), up) if kind.gated else ir.gelu(up)
    return _linear(inputs, kind, inner, kind.width)


_STEPS: tuple[Callable[[Node, Node], Node], ...] = (
    lambda x, _: ir.exp(x),
    lambda x, shared: ir.mul(x, shared),
    lambda x, _: ir.tanh(x),
    lambda x, _: ir.sub(x, ir.max_(x, -1, keepdims=True)),
    lambda x, _: ir.neg(x),
    lambda x, shared: ir.add(x, shared),
)


def _graph(inputs: Inputs, *outputs: Node) -> Graph:
    graph = Graph(tuple(inputs.specs), tuple(OutputSpec(o, dense_strides(o.sizes)) for o in outputs))
    verify(graph)
    return graph
