"""Chains of two ops without rounding errors at special values: what compilers and rewrites make one op of."""

from collections.abc import Iterator

import numpy as np

from fusion_ir import building as B
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, DType
from fusion_ir.ops import make, make_input
from fusion_ir.reference.interpreter import interpret
from testing.tensors import spec
from tests.support.special_values import special_values

EXACT_UNARY = ("neg", "abs", "sign", "relu", "square", "sqrt", "reciprocal", "floor", "ceil", "trunc", "round")
FRACTIONS = (-2.75, -1.5, -0.5, -0.25, 0.25, 0.5, 1.5, 2.75)  # that integers have none of


def cast_chains(x: Node) -> Iterator[Node]:
    """x in each type of integers, and each of these in each type of floats and integers."""
    for through in DTYPES.values():
        if through.is_float or through == x.dtype:
            continue
        between = B.cast(x, through)
        yield from (B.cast(between, to) for to in DTYPES.values() if to not in (through, x.dtype))
        yield B.cast(between, x.dtype)


def unary_chains(x: Node) -> Iterator[Node]:
    """One exact function of another, and sums and products with zeros and ones around each."""
    zero, one = B.full(x.sizes, 0.0, x.dtype), B.full(x.sizes, 1.0, x.dtype)
    firsts = [make(op, (x,)) for op in EXACT_UNARY]
    firsts += [B.sub(zero, x), B.add(x, zero), B.sub(x, zero), B.mul(x, zero), B.div(one, x), B.mul(x, B.neg(one))]
    for first in firsts:
        yield from (make(op, (first,)) for op in EXACT_UNARY)
        yield from (B.sub(zero, first), B.add(first, zero), B.sub(first, x), B.mul(first, x), B.minimum(first, x))


def chain_graph(dtype: DType, kind: str, part: int = 0, parts: int = 1) -> tuple[Graph, list[np.ndarray]]:
    """A graph of the chains of one kind over an input with special values, of a number that no vector divides."""
    x = special_values(dtype)
    if dtype.is_float:
        x = np.concatenate([x, np.array(FRACTIONS, np.float32).astype(dtype.numpy)])
    x = np.resize(x, 2 * len(x) + 1)
    inputs = (spec(x.shape, dtype),)
    node = make_input(0, inputs[0])
    chains = list(dict.fromkeys({"casts": cast_chains, "unary": unary_chains}[kind](node)))[part::parts]
    return Graph(inputs, tuple(OutputSpec(n, (1,)) for n in chains)), [x]


def unlike_in_bits(graph: Graph, arrays: list[np.ndarray], results: list[np.ndarray]) -> list[str]:
    """Where results are not the interpreter's: another number, or another sign of a zero; any NaN is one."""
    found: list[str] = []
    for output, want, got in zip(graph.outputs, interpret(graph, arrays), results, strict=True):
        same = np.asarray(got == want)
        if output.node.dtype.is_float:
            a, b = want.astype(np.float64), got.astype(np.float64)
            same = ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
        for i in np.flatnonzero(~same)[:2]:
            inner, outer = output.node.args[0], output.node
            names = f"{outer.op} {outer.dtype} of {inner.op} {inner.dtype}"
            found.append(f"{names} at {arrays[0][i]}: {got[i]}, expected {want[i]}")
    return found
