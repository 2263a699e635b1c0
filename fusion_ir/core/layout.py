"""Layouts as clients state them: checks that they are legal, and the normal form of equivalent strides."""

from collections.abc import Sequence

from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import InputSpec, OutputSpec
from fusion_ir.core.limits import LIMITS
from fusion_ir.dtype import DType
from fusion_ir.errors import FormatError


def check_strides(place: str, sizes: Sequence[int], strides: Sequence[int], *, written: bool) -> None:
    """Strides in elements. Raises FormatError for a wrong count, negative strides, and axes that overlap.

    A tensor that is only read may repeat itself along an axis (stride 0); one that is `written` may not. Axes must
    nest: each stride at least the span of all axes of smaller stride, which every layout of a framework's tensor
    fulfils.
    """
    if len(strides) != len(sizes):
        raise FormatError(place, f"expected {len(sizes)} strides, got {len(strides)}")
    for axis, stride in enumerate(strides):
        if stride < 0:
            raise FormatError(place, f"axis {axis} has negative stride {stride}")
    if 0 in sizes:
        return
    span, inner = 1, None
    for stride, axis in sorted((s, a) for a, s in enumerate(strides) if sizes[a] > 1):
        if stride == 0 and not written:
            continue
        if stride < span:
            what = f"axis {axis} (extent {sizes[axis]}, stride {stride})"
            with_ = f" with axis {inner} (extent {sizes[inner]}, stride {strides[inner]})" if inner is not None else ""
            raise FormatError(place, f"strides overlap: {what}{with_}, expected a stride of {span} or more")
        span, inner = span + (sizes[axis] - 1) * stride, axis
        if span > LIMITS.elements:
            raise FormatError(place, f"strides span {span} elements, at most {LIMITS.elements} are allowed")


def normal_strides(sizes: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The normal form of strides, with equal addresses: axes of extent 1, whose stride means nothing, get the stride of
    a dense tensor."""
    dense = dense_strides(sizes)
    if 0 in sizes:
        return dense
    return tuple(d if n == 1 else s for n, s, d in zip(sizes, strides, dense, strict=True))


def check_alignment(place: str, alignment_bytes: int, dtype: DType) -> None:
    """Raises FormatError unless a power of two, from the element's size to 4096 bytes."""
    if not dtype.bytes <= alignment_bytes <= 4096 or alignment_bytes & (alignment_bytes - 1):
        expected = f"expected a power of two from {dtype.bytes} to 4096 bytes"
        raise FormatError(place, f"alignment {alignment_bytes} of a tensor of {dtype}: {expected}")


def check_donation(
    place: str,
    output: OutputSpec,
    inputs: Sequence[InputSpec],
    others: Sequence[OutputSpec],
    names: tuple[str, str] | None = None,
) -> None:
    """Raises FormatError unless `output` fits the buffer of the input that it donates exactly, and is alone in it.

    `names` are those of the output's tensor and of the input, where their sender gave them any.
    """
    if output.donates is None:
        return
    spec = inputs[output.donates]
    tensor, donor = ("an output", f"input {output.donates}") if names is None else names
    given = f"{output.node.dtype}{list(output.node.sizes)} strides {list(output.strides)}"
    held = f"{spec.dtype}{list(spec.sizes)} strides {list(spec.strides)}"
    if given != held:
        raise FormatError(place, f"an output takes over a buffer like its own: {tensor} is {given}, {donor} is {held}")
    if spec.constant is not None:
        raise FormatError(place, f"{donor} is constant: no output can take over its buffer")
    if any(o.donates == output.donates for o in others):
        raise FormatError(place, f"{donor} is donated to two outputs")
