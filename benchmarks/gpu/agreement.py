"""Whether a plan computed what PyTorch does, found out where the tensors are: on the CPU it would take longer than the
race."""

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.corpus.pytorch import torch

ULPS = 2.0


class Disagreement(Exception):
    """Plan and PyTorch do not compute the same; the message says where."""


def agree(got: Sequence[Any], peer: Callable[..., Any], inputs: Sequence[Any]) -> None:
    """Raises Disagreement where a tensor is further from PyTorch's in f64 than twice what PyTorch's own is in the
    case's dtype, and two ulps of the largest value."""
    exact = peer(*(t.double() if t.is_floating_point() else t for t in inputs))
    theirs = peer(*inputs)
    for i, (ours, other, truth) in enumerate(zip(got, theirs, exact, strict=True)):
        if ours.shape != truth.shape:
            raise Disagreement(f"out{i} is {list(ours.shape)}, PyTorch's is {list(truth.shape)}")
        wide = truth.double()
        off, allowed = _distance(ours.double(), wide), 2 * _distance(other.double(), wide)
        epsilon = torch.finfo(ours.dtype).eps if ours.is_floating_point() else 0.0
        allowed += ULPS * epsilon * _largest(torch.where(wide.isfinite(), wide.abs(), 0.0))
        if not off <= allowed:
            raise Disagreement(f"out{i} is up to {off:.3g} from PyTorch's in f64, {allowed:.3g} is allowed")


def _distance(a: Any, b: Any) -> float:
    """Infinite where one is finite and the other is not, or they are different infinities."""
    apart = (a - b).abs()
    same = (a == b) | (a.isnan() & b.isnan())
    return _largest(torch.where(same, 0.0, torch.where(apart.isnan(), torch.inf, apart)))


def _largest(x: Any) -> float:
    return float(x.max()) if x.numel() else 0.0
