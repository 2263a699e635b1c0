"""Checks of a plan's tensors at every call: kernels read and write where the plan says, whatever is there."""

from collections.abc import Callable, Sequence

from fuseplan_client.plan import ITEM_BYTES, Plan, Tensor
from fuseplan_client.tensors import View


class GuardError(ValueError):
    """A tensor is not as the plan was made for; says which, what was expected and what came."""


Labels = Callable[[str, int], str]  # of a tensor in messages, by "in" or "out" and its position


def check(plan: Plan, inputs: Sequence[View], outputs: Sequence[View | None], device: int, label: Labels) -> None:
    """Raises GuardError where a tensor is not as the plan was made for. outputs: None for those that are aliases.
    device: the one that the plan is loaded on."""
    for place, views, specs in (("in", inputs, plan.inputs), ("out", outputs, plan.outputs)):
        if len(views) != len(specs):
            raise GuardError(f"expected {len(specs)} {place}puts, got {len(views)}")
        for i, (found, spec) in enumerate(zip(views, specs, strict=True)):
            if found is not None:
                _fits(label(place, i), found, spec, device)
    _apart(inputs, outputs, plan, label)


def _fits(name: str, found: View, spec: Tensor, device: int) -> None:
    if found.dtype != spec.dtype or found.shape != spec.shape:
        raise GuardError(f"{name}: expected {spec.dtype}{list(spec.shape)}, got {found.dtype}{list(found.shape)}")
    if found.device not in (None, device):
        raise GuardError(f"{name}: expected a tensor on device {device}, got one on device {found.device}")
    if not spec.span:
        return
    matters = [(a, b) for n, a, b in zip(spec.shape, found.strides, spec.strides, strict=True) if n != 1]
    if any(a != b for a, b in matters):
        raise GuardError(f"{name}: expected strides {list(spec.strides)}, got {list(found.strides)}")
    if found.address % spec.alignment_bytes:
        raise GuardError(f"{name}: expected alignment to {spec.alignment_bytes} bytes, got address {found.address:#x}")
    if not found.address:
        raise GuardError(f"{name}: expected memory, got a null pointer")


def _apart(inputs: Sequence[View], outputs: Sequence[View | None], plan: Plan, label: Labels) -> None:
    """Raises GuardError where an output overlaps another tensor, by the memory from first to last element: tensors that
    interleave count as overlapping. An output may lie exactly where the input lies that the plan has it in place of."""
    read = [(label("in", i), *_range(v, s)) for i, (v, s) in enumerate(zip(inputs, plan.inputs, strict=True))]
    written = [
        (label("out", i), *_range(v, s))
        for i, (v, s) in enumerate(zip(outputs, plan.outputs, strict=True))
        if v is not None
    ]
    in_place = {(label("out", i), label("in", j)) for i, j in plan.in_place}
    for i, (name, start, end) in enumerate(written):
        for other, low, high in (*read, *written[:i]):
            if start < high and low < end and not ((name, other) in in_place and (start, end) == (low, high)):
                raise GuardError(f"{name} overlaps {other}: expected memory of its own")


def _range(found: View, spec: Tensor) -> tuple[int, int]:
    return found.address, found.address + spec.span * ITEM_BYTES[spec.dtype]
