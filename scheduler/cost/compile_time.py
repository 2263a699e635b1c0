"""Estimated compile times of kernels, by what they compute, before there is a kernel."""

from collections.abc import Iterable

from fusion_ir.core.node import Node
from fusion_ir.ops.contract import ORDERED_PRODUCTS, products
from scheduler.segments.segment import Segment

UNIT_S, NODE_S = 0.05, 0.02  # of one core's compiling: a kernel, and each of its nodes, or piece that it joins
UNROLLED_S = 0.01  # each product of a sum that is written out for several rows at once (100 of 12 to 18: 24 s)
TURNED_S = 0.02  # a tile that is turned in registers (300: 13 s; one element after the other 3.2 s)
COMPILERS = 2  # at work side by side, at least


def compile_seconds(segments: Iterable[Segment], *, unrolled: bool = True) -> float:
    """Seconds of one core to compile a kernel for each segment. unrolled: kernels of the schedules that are tried
    first; else of those that write out least."""
    return sum(UNIT_S + sum(_node_s(n) + (_unrolled_s(n) if unrolled else 0.0) for n in s.cone) for s in segments)


def is_too_much(segments: Iterable[Segment], seconds: float, *, unrolled: bool = True) -> bool:
    """Whether COMPILERS compilers side by side need longer than `seconds` for kernels of these segments."""
    return compile_seconds(segments, unrolled=unrolled) > COMPILERS * seconds


def is_unrolled(segment: Segment) -> bool:
    """Whether schedules that are tried first write out sums of it, or the turning of tiles."""
    return any(_unrolled_s(n) for n in segment.cone)


def _node_s(node: Node) -> float:
    return NODE_S * (len(node.args) if node.op == "cat" else 1)


def _unrolled_s(node: Node) -> float:
    """Seconds for code that schedules write out: a sum of few products, which becomes no loop, and a permutation that
    moves the last axis. 0 for other nodes."""
    if node.op == "permute":
        return TURNED_S if node.attr("dims", tuple)[-1] != len(node.sizes) - 1 else 0.0
    is_short = node.op == "contract" and products(node) <= ORDERED_PRODUCTS
    return UNROLLED_S * products(node) if is_short else 0.0
