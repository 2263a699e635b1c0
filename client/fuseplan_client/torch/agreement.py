"""Whether a plan's tensors agree with those of what it replaces, by tolerances that are stated here."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

# By dtype: how far the results may be apart as a whole, root of the sum of squares of differences over that of the
# values; both sides round, each op of a group, and sums may be in any order. In f32 a term that is left out of a sum of
# a thousand, a scale taken twice or an operand transposed is beyond these; what lies between is for the service, which
# checked the plan against error bounds of the graph before it gave it away.
TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
    torch.float8_e4m3fn: 2e-1,
    torch.float8_e5m2: 4e-1,
}
# A single element may be so many times further off than the whole, relative to its own value and the tensor's root mean
# square together: what cancels in one element is as large as in others.
ELEMENT = 100.0
# Where terms cancel, what is left is off by so many roundings of the largest output: a sum of thousands of terms.
CANCELLED = 64
# Of integers and booleans, so many may differ: where floats that are compared or rounded to them lie next to each
# other.
FLIPPED = 1e-3


def disagreement(found: Any, expected: Any) -> str:
    """Where the results of a group and of its plan differ by more than the tolerance; "" where they do not. Both are a
    tensor, or a sequence of tensors and other values."""
    ours, theirs = (v if isinstance(v, Sequence) else (v,) for v in (found, expected))
    sizes = dict[torch.dtype, float]()
    for t in theirs:
        if isinstance(t, torch.Tensor) and t.dtype in TOLERANCE and t.numel():
            finite = t.detach().double().nan_to_num(posinf=0.0, neginf=0.0)
            sizes[t.dtype] = max(sizes.get(t.dtype, 0.0), finite.square().mean().sqrt().item())
    if len(ours) != len(theirs):
        return f"{len(ours)} outputs, expected {len(theirs)}"
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if problem := _of_tensors(a, b, sizes) if isinstance(b, torch.Tensor) else _of_values(a, b):
            return f"output {i}: {problem}"
    return ""


def _of_values(a: Any, b: Any) -> str:
    return "" if type(a) is type(b) and (a == b or a is b) else f"expected {b!r}, got {a!r}"


def _of_tensors(a: Any, b: torch.Tensor, sizes: Mapping[torch.dtype, float]) -> str:
    """sizes: by dtype, root mean square of the largest output. One whose terms cancel, as the gradient of a bias before
    a norm, is roundings of terms as large as others alone."""
    if not isinstance(a, torch.Tensor):
        return f"expected a tensor, got {a!r}"
    said = [(t.dtype, tuple(t.shape), tuple(t.stride()), t.device) for t in (a, b)]
    if said[0] != said[1] and b.numel():
        return f"expected {said[1]}, got {said[0]}"
    if not b.numel():
        return "" if a.shape == b.shape and a.dtype == b.dtype else f"expected {said[1]}, got {said[0]}"
    if b.dtype not in TOLERANCE:
        share = (a != b).double().mean().item()
        return f"{share:.2%} of its elements differ" if share > FLIPPED else ""
    tolerance = TOLERANCE[b.dtype]
    x, y = a.detach().double(), b.detach().double()
    special = ~torch.isfinite(y)
    if not torch.equal(special, ~torch.isfinite(x)) or not torch.equal(
        x[special].nan_to_num(), y[special].nan_to_num()
    ):
        return "infinities or NaN at other places"
    x, y = x[~special], y[~special]
    if not y.numel():
        return ""
    off, size = (x - y).square().mean().sqrt().item(), y.square().mean().sqrt().item()
    limits = torch.finfo(b.dtype)
    tiny = max(limits.tiny, min(CANCELLED * limits.eps, tolerance) * sizes[b.dtype])
    if off > tolerance * size + tiny:
        return f"off by {off / size if size else off:.2g} as a whole, allowed are {tolerance:.2g}"
    beyond = (x - y).abs() - ELEMENT * (tolerance * (y.abs() + size) + tiny)
    if (worst := int(beyond.argmax())) >= 0 and beyond[worst] > 0:
        return f"an element is {x[worst].item():.6g}, expected {y[worst].item():.6g}"
    return ""
