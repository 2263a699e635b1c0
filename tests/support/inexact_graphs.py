"""Random small graphs of inexact values, and what is hard to judge about them: products of few terms, masks, extremes,
branches, quotients, gradients, steps of optimizers."""

import random
from collections.abc import Callable

from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, bf16, f16, f32, f64
from testing.tensors import graph_of, spec

DTYPES = (f32, f32, f32, bf16, f16, f64)
ROWS, COLUMNS = (1, 3, 16, 33, 64), (1, 4, 17, 32, 65)

Step = Callable[[Node, Node], Node]  # of two tensors of one shape


def _silu_gradient(x: Node, g: Node) -> Node:
    s = build.sigmoid(x)
    return build.mul(build.mul(g, s), build.add(build.mul(x, build.sub(1.0, s)), 1.0))


def _gelu_gradient(x: Node, g: Node) -> Node:
    cdf = build.mul(build.add(build.erf(build.mul(x, 0.70710678)), 1.0), 0.5)
    pdf = build.mul(build.exp(build.mul(build.mul(x, x), -0.5)), 0.39894228)
    return build.mul(g, build.add(cdf, build.mul(x, pdf)))


def _softmax_gradient(x: Node, g: Node) -> Node:
    y = build.softmax(x)
    weighted = build.mul(y, g)
    return build.sub(weighted, build.mul(y, build.sum_(weighted, -1, True)))


def _adam(x: Node, g: Node) -> Node:
    first = build.lerp(x, g, 0.1)
    second = build.add(build.mul(build.square(x), 0.99), build.mul(build.square(g), 0.01))
    return build.sub(x, build.mul(build.div(first, build.add(build.sqrt(second), 1e-8)), 1e-3))


def _adamw(x: Node, g: Node) -> Node:
    return build.sub(_adam(build.mul(x, 1 - 1e-5), g), build.mul(build.exp(g), 1e-4))


def _lamb(x: Node, g: Node) -> Node:
    step = build.add(build.div(g, build.add(build.sqrt(build.square(x)), 1e-6)), build.mul(x, 0.01))
    norms = [build.sqrt(build.sum_(build.square(y))) for y in (x, step)]
    return build.sub(x, build.mul(step, build.div(build.mul(norms[0], 1e-3), norms[1])))


PROLOGUES: tuple[Callable[[Node], Node], ...] = (
    build.exp, build.sin, build.tanh, build.sigmoid, build.erf, build.gelu,
    lambda x: build.log(build.add(build.abs_(x), 0.5)),
    lambda x: build.rsqrt(build.add(build.square(x), 0.25)), lambda x: x, lambda x: build.exp(build.neg(build.abs_(x))),
)  # fmt: skip
BODIES: tuple[Step, ...] = (
    _silu_gradient, _gelu_gradient, _softmax_gradient, _adam, _adamw, _lamb,
    lambda x, g: build.softmax(x), lambda x, g: build.layer_norm(x, -1), lambda x, g: build.log_softmax(x),
    lambda x, g: build.sub(build.sin(x), build.mul(build.sin(g), 0.5)),
    lambda x, g: build.div(g, build.add(build.square(build.sin(x)), 1e-3)),
    lambda x, g: build.mul(x, build.mean(build.exp(g), -1, True)),
    lambda x, g: build.cumsum(build.sigmoid(x), -1),
)  # fmt: skip
EPILOGUES: tuple[Step, ...] = (
    lambda x, g: build.relu(x), lambda x, g: build.maximum(x, g), lambda x, g: build.minimum(x, build.mul(g, 0.5)),
    lambda x, g: build.clamp(x, -0.5, 0.75), lambda x, g: build.where(build.gt(x, g), x, build.mul(g, 2.0)),
    lambda x, g: build.where(build.gt(build.exp(x), 1.0), build.tanh(g), 0.0),
    lambda x, g: build.mul(x, build.cast(build.gt(g, 0.0), x.dtype)), lambda x, g: build.tril(x),
    lambda x, g: build.triu(x, 1),
    lambda x, g: build.abs_(build.sub(x, build.tanh(x))), lambda x, g: build.add(x, g),
    lambda x, g: build.max_(x, -1, True), lambda x, g: build.sum_(x, -1), lambda x, g: build.sign(x),
    lambda x, g: build.dropout(x, 0.3, 7, 11)[0], lambda x, g: build.silu(x), lambda x, g: x,
    lambda x, g: build.mean(x, 0),
)  # fmt: skip


def inexact_graph(seed: int) -> Graph:
    """A prologue, a product of few terms or something else, and one to three epilogues."""
    draw = random.Random(seed)
    dtype: DType = draw.choice(DTYPES)
    rows, columns, inner = draw.choice(ROWS), draw.choice(COLUMNS), draw.randint(1, 8)
    is_product = draw.random() < 0.5
    shapes = [(rows, inner if is_product else columns), (inner, columns), (rows, columns)]

    def read(x: Node, w: Node, g: Node) -> list[Node]:
        y = draw.choice(PROLOGUES)(x)
        if is_product:
            y = build.matmul(y, w)
        if not is_product or draw.random() < 0.3:
            y = draw.choice(BODIES)(y, g)
        outputs = [y] if draw.random() < 0.3 else []
        for _ in range(draw.randint(1, 3)):
            if y.sizes != (rows, columns) or not y.dtype.is_float:
                break
            y = draw.choice(EPILOGUES)(y, build.cast(g, y.dtype))
        if draw.random() < 0.2 and y.dtype.is_float:
            y = build.cast(y, draw.choice((bf16, f16, f32)))
        return [*outputs, y]

    return graph_of([spec(s, dtype) for s in shapes], read)


# Deep graphs, each step of which may make an error larger than the step before: until nothing is left of some values.

Grow = Callable[[Node, Node, Node, random.Random], Node]  # of two tensors of one shape, and a square weight


def _centred(x: Node, y: Node, w: Node, draw: random.Random) -> Node:
    extreme = draw.choice((build.mean, build.max_, build.sum_, build.min_))(x, draw.randint(0, 1), True)
    return draw.choice((build.tanh, build.exp, build.sin, lambda z: z))(build.tanh(build.sub(x, extreme)))


def _shifted(x: Node, y: Node, w: Node, draw: random.Random) -> Node:
    rows, columns = x.sizes
    cut = draw.randint(1, columns - 1)
    return draw.choice((
        lambda: build.cat([build.slice_(x, (0, cut), (rows, columns)), build.slice_(x, (0, 0), (rows, cut))], 1),
        lambda: build.reshape(build.permute(x, (1, 0)), (rows, columns)),
        lambda: build.pad(x, (1, 0), (-1, 0)),
    ))()  # fmt: skip


GROWING: tuple[Grow, ...] = (
    _centred, _centred, _shifted,
    lambda x, y, w, draw: build.mul(build.matmul(x, w), draw.choice((0.05, 0.3))),
    lambda x, y, w, draw: build.tanh(build.matmul(x, w)),
    lambda x, y, w, draw: draw.choice((build.softmax, build.log_softmax))(x, draw.randint(0, 1)),
    lambda x, y, w, draw: build.layer_norm(x, -1),
    lambda x, y, w, draw: build.tanh(build.cumsum(x, draw.randint(0, 1))),
    *(lambda x, y, w, draw, of=of: of(x) for of in (
        build.tanh, build.sigmoid, build.sin, build.cos, build.erf, build.silu, build.square, build.abs_, build.neg,
        build.relu, build.floor, build.sign,
    )),
    *(lambda x, y, w, draw, of=of: of(x, y) for of in (
        build.add, build.sub, build.mul, build.maximum, build.minimum, build.atan2,
    )),
    lambda x, y, w, draw: build.tanh(build.add(x, y)),
    lambda x, y, w, draw: build.where(build.gt(x, y), build.mul(x, 0.5), build.neg(y)),
)  # fmt: skip


def _recurrent(step: Grow, times: int, dtype: DType, sizes: tuple[int, int], draw: random.Random) -> Graph:
    """One step over and over, a new input each time: h = tanh(h @ w + x[i]) and its like."""
    rows, columns = sizes

    def read(h: Node, x: Node, w: Node) -> Node:
        for i in range(times):
            h = step(h, build.squeeze(build.slice_(x, (i, 0, 0), (i + 1, rows, columns)), (0,)), w, draw)
        return h

    return graph_of([spec(s, dtype) for s in (sizes, (times, *sizes), (columns, columns))], read)


RECURRENCES: tuple[Grow, ...] = (
    lambda h, x, w, draw: build.tanh(build.add(build.matmul(h, w), x)),
    lambda h, x, w, draw: build.sin(build.add(build.matmul(h, w), x)),
    lambda h, x, w, draw: build.layer_norm(build.add(build.matmul(h, w), x), -1),
    lambda h, x, w, draw: build.log_softmax(build.add(build.mul(h, 3.0), x), 1),
    lambda h, x, w, draw: build.mul(h, build.sub(3.9, build.mul(build.sigmoid(h), build.add(x, 4.0)))),
    lambda h, x, w, draw: build.add(build.mul(build.sigmoid(build.matmul(h, w)), h), build.tanh(x)),
)  # fmt: skip


def amplifying_graph(seed: int, most: int = 300) -> Graph:
    """20 to `most` random steps, of about two nodes each, or 10 to 60 times the same one."""
    draw = random.Random(seed)
    dtype: DType = draw.choice(DTYPES)
    sizes = (draw.choice(ROWS[2:]), draw.choice(COLUMNS[2:]))
    if draw.random() < 0.25:
        return _recurrent(draw.choice(RECURRENCES), draw.randint(10, 60), dtype, sizes, draw)
    steps = draw.randint(20, most)

    def read(*given: Node) -> list[Node]:
        pool, read_by_others = list(given[:3]), set[Node]()
        while len(pool) < steps:
            x, y = draw.choice(pool[-8:]), draw.choice(pool)
            made = draw.choice(GROWING)(x, y, draw.choice(given[3:]), draw)
            read_by_others |= {x, *made.args}
            pool.append(made)
        return [node for node in pool[3:] if node not in read_by_others]

    square = (sizes[1], sizes[1])
    return graph_of([spec(s, dtype) for s in (sizes, sizes, sizes, square, square)], read)
