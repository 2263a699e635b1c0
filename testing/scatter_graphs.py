"""Random graphs around scatters: slices out of pointwise ops, gathers and views, and what follows their sums."""

from math import prod

from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, bool_, f16, f32, f64, i8, i32, i64
from fusion_ir.ops import RuleError, make
from testing.random_graphs import Chooser, Maker

EXTENTS = (1, 2, 3, 5, 8, 16, 17, 31, 64, 65, 100)
DTYPES = (f32, f32, f32, bf16, bf16, f16, f64, i32, i64, i8, bool_)
COMBINED = ("add", "sub", "mul", "maximum")


def scatter_graph(choose: Chooser, *, steps: int = 4, max_elements: int = 6000) -> Graph:
    """A graph of one or two scatters with ops before and behind them, most of which family `scatter` accepts."""
    m = Maker(choose, exact=False, max_elements=max_elements)
    sizes = [m.pick(EXTENTS) for _ in range(m.pick((1, 2, 2, 2, 3)))]
    while prod(sizes) > max_elements:
        sizes[sizes.index(max(sizes))] //= 2
    m.nodes.append(m.input(sizes, m.pick(DTYPES)))
    for _ in range(choose.below(steps)):
        m.step([m.pointwise] * 3 + [m.view] * 2 + [m.convert, m.gather])
    total = _scattered(m)
    if m.chance(30):
        other = _scattered(m)
        if (total.sizes, total.dtype) == (other.sizes, other.dtype):
            total = make(m.pick(COMBINED), (total, other), {})
        else:
            m.nodes.append(other)
    m.nodes.append(total)
    if m.chance(50) and total.elements:  # added to what is there
        base = m.input(total.sizes, total.dtype)
        m.nodes += [base, make("add", (base, total), {})]
    behind = Maker(choose, exact=False, max_elements=max_elements)
    behind.inputs, behind.nodes = m.inputs, m.nodes[-1:]
    for _ in range(choose.below(steps)):
        behind.step([behind.pointwise] * 4 + [behind.convert, lambda: _reduced(behind)])
    m.nodes += behind.nodes[1:]
    return m.graph(1 + choose.below(2))


def _reduced(m: Maker) -> Node:
    """A reduction that is no variance: where most terms are one number, as sums of no slice are, kernels that add a
    variance up one term after the other are off by more than the check allows, whatever the terms come from."""
    node = m.reduction()
    if node.op == "var":
        raise RuleError("a variance of repeated numbers")
    return node


def _scattered(m: Maker) -> Node:
    """A scatter of a tensor drawn, along any of its axes, by an index of its own or by places computed of two."""
    x = m.operand(lambda n: n.rank > 0) or m.of_shape((30, 17), f32)
    axis, extent = m.choose.below(x.rank), m.pick((1, 2, 7, 16, 50))
    index = m.index(x.sizes[axis : axis + 1])
    if m.chance(20):
        index = make(m.pick(("add", "maximum")), (index, m.input(index.sizes, index.dtype)), {})
    return make("scatter_sum", (x, index), {"axis": axis, "extent": extent})
