"""How long kernels take a compiler, by what they compute: said before there is a kernel."""

from collections.abc import Iterable

from scheduler.segment import Segment

UNIT_S, NODE_S = 0.05, 0.02  # of one core's compiling: a kernel, and each of its nodes
COMPILERS = 2  # at work side by side, at least


def compile_seconds(segments: Iterable[Segment]) -> float:
    """Of one core, for kernels of these."""
    return sum(UNIT_S + NODE_S * len(s.cone) for s in segments)


def is_too_much(segments: Iterable[Segment], seconds: float) -> bool:
    """Whether compilers need longer for kernels of these than there is time."""
    return compile_seconds(segments) > COMPILERS * seconds
