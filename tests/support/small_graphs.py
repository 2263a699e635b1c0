"""Small random graphs for tests of text and keys: every kind of attribute, layout and boundary, no regard to sense."""

import random
from collections.abc import Callable

from fusion_ir.core.extent import dense_strides, shape_of, sizes
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Attr, Node
from fusion_ir.core.scalar import Scalar
from fusion_ir.dtype import DTYPES, DType, bf16, f32, i64
from fusion_ir.ops import make, make_input


def random_graph(seed: int, steps: int = 12) -> Graph:
    """A verified graph of up to `steps` nodes beside its inputs. The same seed gives the same graph."""
    rng = random.Random(seed)
    specs = [_spec(rng) for _ in range(rng.randint(1, 4))]
    nodes = [make_input(i, spec) for i, spec in enumerate(specs)]
    for _ in range(rng.randint(1, steps)):
        nodes.append(rng.choice(_STEPS)(rng, rng.choice(nodes), nodes))
    chosen = rng.sample(nodes, min(len(nodes), rng.randint(1, 3)))
    outputs = [OutputSpec(node, _strides(rng, node.sizes)) for node in chosen]
    if rng.random() < 0.3:
        outputs.append(rng.choice(outputs))
    return Graph(tuple(specs), tuple(outputs))


def _spec(rng: random.Random) -> InputSpec:
    extents = tuple(rng.choice((1, 2, 3, 4, 8)) for _ in range(rng.randint(0, 3)))
    dtype = rng.choice((f32, bf16, i64, DTYPES["bool"], f32, bf16))
    constant = rng.choice((None, None, None, "v1", 'odd "version"\n'))
    return InputSpec(shape_of(extents), dtype, _strides(rng, extents), rng.choice((8, 16, 64)), constant)


def _strides(rng: random.Random, extents: tuple[int, ...]) -> tuple[int, ...]:
    """Dense in a random order of axes, sometimes with room between rows. Strides of axes of extent 1 stay dense."""
    order = list(range(len(extents)))
    if rng.random() < 0.4:
        rng.shuffle(order)
    gap = rng.choice((1, 1, 1, 2))
    strides, step = list(dense_strides(extents)), gap
    for axis in reversed(order):
        if extents[axis] > 1:
            strides[axis] = step
            step *= extents[axis]
    return tuple(strides)


def _unary(rng: random.Random, x: Node, nodes: list[Node]) -> Node:
    if x.dtype.is_float:
        return make(rng.choice(("exp", "neg", "sqrt", "sin")), [x])
    return make("neg", [x]) if x.dtype.is_integer else make("logical_not", [x])


def _binary(rng: random.Random, x: Node, nodes: list[Node]) -> Node:
    partners = [n for n in nodes if n.shape == x.shape and n.dtype == x.dtype]
    op = rng.choice(("add", "mul", "sub")) if x.dtype.name != "bool" else rng.choice(("logical_and", "logical_xor"))
    return make(op, [x, rng.choice(partners)])


def _cast(rng: random.Random, x: Node, nodes: list[Node]) -> Node:
    return make("cast", [x], {"dtype": rng.choice(list(DTYPES.values()))})


def _constant(rng: random.Random, x: Node, nodes: list[Node]) -> Node:
    value = _scalar(rng, x.dtype)
    return make("full", [], {"shape": x.shape, "value": value})


def _scalar(rng: random.Random, dtype: DType) -> Scalar:
    if dtype.is_float:
        return Scalar.of(rng.choice((0.0, -0.0, 1.5, float("inf"), float("nan"), rng.uniform(-3, 3))), dtype)
    return Scalar.of(rng.randint(0, 1), dtype)


def _permute(rng: random.Random, x: Node, nodes: list[Node]) -> Node:
    dims = list(range(x.rank))
    rng.shuffle(dims)
    return make("permute", [x], {"dims": tuple(dims)})


def _reshape(rng: random.Random, x: Node, nodes: list[Node]) -> Node:
    return make("reshape", [x], {"shape": shape_of([x.elements] if rng.random() < 0.5 else [1, *x.sizes])})


def _slice(rng: random.Random, x: Node, nodes: list[Node]) -> Node:
    start = tuple(rng.randint(0, n) for n in x.sizes)
    attrs: dict[str, Attr] = {"start": start, "stop": x.sizes, "step": tuple(rng.randint(1, 2) for _ in start)}
    return make("slice", [x], attrs)


def _pad(rng: random.Random, x: Node, nodes: list[Node]) -> Node:
    low = tuple(rng.randint(0, 2) for _ in x.sizes)
    high = tuple(rng.randint(-lo if n else 0, 2) for lo, n in zip(low, x.sizes, strict=True))
    return make("pad", [x], {"low": low, "high": high, "value": _scalar(rng, x.dtype)})


def _cat(rng: random.Random, x: Node, nodes: list[Node]) -> Node:
    return make("cat", [x, x], {"axis": rng.randrange(x.rank)}) if x.rank else x


def _reduce(rng: random.Random, x: Node, nodes: list[Node]) -> Node:
    if not x.rank:
        return x
    axes = tuple(sorted(rng.sample(range(x.rank), rng.randint(1, x.rank))))
    if x.dtype.is_float and rng.random() < 0.3:
        return make("var", [x], {"axes": axes, "correction": rng.randint(0, 1)})
    return make("sum", [x], {"axes": axes})


def _broadcast(rng: random.Random, x: Node, nodes: list[Node]) -> Node:
    if x.elements > 256:
        return x
    attrs: dict[str, Attr] = {"shape": shape_of([2, *sizes(x.shape)]), "dims": tuple(range(1, x.rank + 1))}
    return make("broadcast_in_dim", [x], attrs)


_STEPS: tuple[Callable[[random.Random, Node, list[Node]], Node], ...] = (
    _unary, _binary, _binary, _cast, _constant, _permute, _reshape, _slice, _pad, _cat, _reduce, _broadcast,
)  # fmt: skip
