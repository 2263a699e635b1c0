"""Whether a plan's tensors agree with those of what it replaces, by tolerances that are stated here."""

import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from fuseplan_client.torch.kernel_values import steps
from fuseplan_client.torch.symbols import hint

# By dtype: how far the results may be apart as a whole, root of the sum of squares of differences over that of the
# values; both sides round, each op of a group, and sums may be in any order. The dtype is the coarsest that a group
# rounds to on the way to a result: an f32 sum of bf16 products is off by their roundings. In f32 a term that is left
# out of a sum of a thousand, a scale taken twice or an operand transposed is beyond these; what lies between is for the
# service, which checked the plan against error bounds of the graph before it gave it away.
TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
    torch.float8_e4m3fn: 2e-1,
    torch.float8_e5m2: 4e-1,
}
# Where the program lets PyTorch multiply f32 by less (`torch.set_float32_matmul_precision`), PyTorch's results are off
# by more: both operands are rounded to 11 bits (3e-4 was seen) or to 8.
REDUCED = {"tf32": 2e-3, "bf16": 2e-2}
# A single element may be so many times further off than the whole, relative to its own value and the tensor's root mean
# square together: what cancels in one element is as large as in others.
ELEMENT = 100.0
# Where terms cancel, what is left is off by so many roundings of the largest output: a sum of thousands of terms.
CANCELLED = 64
# Backward kernels of norms add n terms one after the other: of either sign, these are off by n / sqrt(2) roundings, and
# so much is allowed, of the output with the most elements. Gradients of a batch norm behind another were off by 2,300
# and 6,100 roundings with 25,000 terms for each channel, by 5,000 and 27,000 with 100,000 (PyTorch 2.13, row-major and
# channels-last images).
BY_TERMS, MOST_BY_TERMS = 2**-0.5, 1e-2
SEQUENTIAL = (
    torch.ops.aten.native_batch_norm_backward.default,
    torch.ops.aten.native_group_norm_backward.default,
    torch.ops.aten.native_layer_norm_backward.default,
)
# Of integers and booleans, so many may differ: where floats that are compared or rounded to them lie next to each
# other.
FLIPPED = 1e-3
CHUNK = 1 << 22  # elements that are compared at a time


def roundings(module: GraphModule) -> list[torch.dtype | None]:
    """For each output of a group, the coarsest dtype of what the group computes on the way to it, itself among them;
    None where there are no floats. What the group is given has no roundings of its own."""
    of: dict[Node, torch.dtype | None] = {}
    for node in module.graph.nodes:
        if node.op not in ("placeholder", "get_attr", "output"):
            own = [v.dtype for v in tree_leaves((node.meta.get("val"),)) if isinstance(v, torch.Tensor)]
            of[node] = _coarsest([*own, *(of.get(n) for n in node.all_input_nodes)])
    (results,) = next(n for n in module.graph.nodes if n.op == "output").args
    listed = results if isinstance(results, Sequence) else (results,)
    return [of.get(r) if isinstance(r, Node) else None for r in listed]


def terms(module: GraphModule) -> list[int]:
    """For each output of a group, how many terms its elements are sums of that PyTorch's kernels add one after the
    other: gradients of the parameters of norms, and what comes of these. 1 for others."""
    of: dict[Node, int] = {}
    for node in module.graph.nodes:
        of[node] = max(map(of.__getitem__, node.all_input_nodes), default=1)
        source = node.args[0] if node.target is operator.getitem else None
        if isinstance(source, Node) and source.target in SEQUENTIAL and node.args[1] != 0:
            grad: Any = source.args[0]
            of[node] = max(of[node], int(hint(grad.meta["val"].numel())) // max(int(hint(node.meta["val"].numel())), 1))
    (results,) = next(n for n in module.graph.nodes if n.op == "output").args
    listed = results if isinstance(results, Sequence) else (results,)
    return [of.get(r, 1) if isinstance(r, Node) else 1 for r in listed]


def _coarsest(dtypes: Iterable[torch.dtype | None]) -> torch.dtype | None:
    known = [d for d in dtypes if d is not None and d in TOLERANCE]
    return max(known, key=TOLERANCE.__getitem__, default=None)


def disagreement(
    found: Any, expected: Any, rounded: Sequence[torch.dtype | None] = (), summed: Sequence[int] = ()
) -> str:
    """Where the results of a group and of its plan differ by more than the tolerance; "" where they do not. Both are a
    tensor, or a sequence of tensors and other values. rounded, summed: as `roundings` and `terms` have them, where they
    are a group's."""
    ours, theirs = (v if isinstance(v, Sequence) else (v,) for v in (found, expected))
    if len(ours) != len(theirs):
        return f"{len(ours)} outputs, expected {len(theirs)}"
    dtypes = [
        _coarsest([t.dtype, given]) if isinstance(t, torch.Tensor) and t.dtype in TOLERANCE else None
        for t, given in zip(theirs, rounded or [None] * len(theirs), strict=True)
    ]
    sizes, most = dict[torch.dtype, float](), dict[torch.dtype, tuple[int, float]]()
    for t, dtype in zip(theirs, dtypes, strict=True):
        if dtype is not None and t.numel():
            chunks = (c.double().nan_to_num(posinf=0.0, neginf=0.0) for c, _ in _chunks(t, t))
            size = math.sqrt(sum(c.square().sum().item() for c in chunks) / t.numel())
            sizes[dtype] = max(sizes.get(dtype, 0.0), size)
            most[dtype] = max(most.get(dtype, (0, 0.0)), (t.numel(), size))
    counts = summed or [1] * len(theirs)
    for i, (a, b, dtype, count) in enumerate(zip(ours, theirs, dtypes, counts, strict=True)):
        by_terms = min(BY_TERMS * count * torch.finfo(torch.float32).eps, MOST_BY_TERMS) if count > 1 else 0.0
        off = by_terms * most[dtype][1] if dtype in most else 0.0
        if problem := _of_tensors(a, b, dtype, sizes, off) if isinstance(b, torch.Tensor) else _of_values(a, b):
            return f"output {i}: {problem}"
    return ""


def is_beyond_numbers(inputs: Iterable[Any], results: Any) -> bool:
    """Whether there is NaN among the inputs of a call, or NaN or an infinity among its results: kernels of PyTorch's
    differ from each other there, the vectors of one from its last few elements."""
    given = (t for t in inputs if isinstance(t, torch.Tensor) and t.is_floating_point())
    made = (t for t in tree_leaves((results,)) if isinstance(t, torch.Tensor) and t.is_floating_point())
    return any(t.isnan().any().item() for t in given) or not all(t.isfinite().all().item() for t in made)


def _reduced(device: torch.device) -> float:
    """The tolerance of f32 where PyTorch may multiply by less, 0 where it may not."""
    library: Any = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn  # types lack what they have
    return REDUCED.get(str(library.matmul.fp32_precision), 0.0)


def _of_values(a: Any, b: Any) -> str:
    return "" if type(a) is type(b) and (a == b or a is b) else f"expected {b!r}, got {a!r}"


def _of_tensors(
    a: Any, b: torch.Tensor, rounded: torch.dtype | None, sizes: Mapping[torch.dtype, float], by_terms: float
) -> str:
    """rounded: the dtype whose roundings count, None for integers. sizes: by that, root mean square of the largest
    output. One whose terms cancel, as the gradient of a bias before a norm, is roundings of terms as large as others
    alone. by_terms: how far the kernel may be off besides."""
    if not isinstance(a, torch.Tensor):
        return f"expected a tensor, got {a!r}"
    said = [(t.dtype, tuple(t.shape), tuple(t.stride()), t.device) for t in (a, b)]
    if b.numel() and (said[0][:2] != said[1][:2] or steps(a) != steps(b) or a.device != b.device):
        return f"expected {said[1]}, got {said[0]}"
    if not b.numel():
        return "" if a.shape == b.shape and a.dtype == b.dtype else f"expected {said[1]}, got {said[0]}"
    if rounded is None:
        differing = sum((x != y).sum().item() for x, y in _chunks(a, b))
        return f"{differing / b.numel():.2%} of its elements differ" if differing > FLIPPED * b.numel() else ""
    tolerance = max(TOLERANCE[rounded], _reduced(b.device) if b.dtype == torch.float32 else 0.0)
    off = size = count = 0.0
    for x, y in _finite(a, b):
        if x is None or y is None:
            return "infinities or NaN at other places"
        off += (x - y).square().sum().item()
        size += y.square().sum().item()
        count += y.numel()
    if not count:
        return ""
    off, size = math.sqrt(off / count), math.sqrt(size / count)
    limits = torch.finfo(rounded)
    tiny = max(limits.tiny, min(CANCELLED * limits.eps, tolerance) * sizes[rounded], by_terms)
    if off > tolerance * size + tiny:
        return f"off by {off / size if size else off:.2g} as a whole, allowed are {tolerance:.2g}"
    for x, y in _finite(a, b):
        assert x is not None and y is not None
        beyond = (x - y).abs() - ELEMENT * (tolerance * (y.abs() + size) + tiny)
        if beyond.numel() and beyond[worst := int(beyond.argmax())] > 0:
            return f"an element is {x[worst].item():.6g}, expected {y[worst].item():.6g}"
    return ""


def _finite(a: Any, b: Any) -> Iterator[tuple[torch.Tensor | None, torch.Tensor | None]]:
    """The elements of both that are finite in b, in f64, some at a time; None where a has others that are not."""
    for x, y in _chunks(a, b):
        x, y = x.double(), y.double()
        special = ~torch.isfinite(y)
        if special.any() or not torch.isfinite(x).all():
            same = torch.equal(special, ~torch.isfinite(x))
            if not same or not torch.equal(x[special].nan_to_num(), y[special].nan_to_num()):
                yield None, None
            x, y = x[~special], y[~special]
        yield x, y


def _chunks(a: torch.Tensor, b: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Elements of both, up to CHUNK at a time: in f64 all of a large tensor might have no room beside the model."""
    x, y = a.detach().reshape(-1), b.detach().reshape(-1)
    for start in range(0, y.numel(), CHUNK):
        yield x[start : start + CHUNK], y[start : start + CHUNK]
