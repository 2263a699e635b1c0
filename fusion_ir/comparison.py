"""Comparing a kernel's outputs with those expected: every element of every output."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import Protocol

import numpy as np

from fusion_ir.numerics import dtype_of, widen

Index = tuple[slice | EllipsisType, ...]


class Allowed(Protocol):
    """How far an output may be off: absolute, per element, and known better and better."""

    @property
    def parts(self) -> Sequence[Index]:
        """Indices that cut the output into parts."""
        ...

    def growing(self, part: int) -> Iterator[np.ndarray]:
        """Tolerances of one part, none of them smaller than the one before; the last is the tolerance. A tolerance of
        infinity means that anything goes there; zeros mean equal values, where zeros of either sign are equal."""
        ...


class Fixed:
    """A tolerance that is known, for the output in one part."""

    parts: Sequence[Index] = [(...,)]

    def __init__(self, tolerance: np.ndarray) -> None:
        self._tolerance = tolerance

    def growing(self, part: int) -> Iterator[np.ndarray]:
        yield self._tolerance


class Reference:
    """The outputs expected, dense, and what each is allowed; None: bit for bit."""

    def __init__(self, outputs: Sequence[np.ndarray], allowed: Sequence[Allowed | None]) -> None:
        self.outputs, self.allowed = list(outputs), list(allowed)
        self._scales: dict[int, float] = {}

    @property
    def atol(self) -> list[np.ndarray | None]:
        """Tolerances of all elements; None: bit for bit. Computes what is not known yet."""
        found: list[np.ndarray | None] = []
        for expected, allowed in zip(self.outputs, self.allowed, strict=True):
            if allowed is None:
                found.append(None)
                continue
            parts = [[*allowed.growing(k)][-1] for k in range(len(allowed.parts))]
            whole = np.empty(expected.shape, parts[0].dtype)
            for index, part in zip(allowed.parts, parts, strict=True):
                whole[index] = part
            found.append(whole)
        return found

    def scale(self, i: int) -> float:
        """Largest finite magnitude of an output; 1 where that is 0."""
        if i not in self._scales:
            wide = widen(self.outputs[i])
            low, high = (float(f(wide, initial=0)) for f in (np.min, np.max))
            if not np.isfinite([low, high]).all():
                finite = np.where(np.isfinite(wide), wide, wide.dtype.type(0))
                low, high = (float(f(finite, initial=0)) for f in (np.min, np.max))
            self._scales[i] = max(-low, high) or 1.0
        return self._scales[i]


@dataclass(frozen=True, slots=True)
class Comparison:
    """`max_rel_error`: the largest difference over the largest magnitude expected, of the worst output; infinite where
    a value is wrongly finite, infinite or NaN. `detail`: "" or the first element beyond tolerance."""

    ok: bool
    max_rel_error: float
    detail: str


@dataclass(slots=True)
class _Wrong:
    """What is wrong with one output so far. skipped: parts were left out, since it is wrong anyway."""

    largest: float = 0.0  # difference, where it counts
    count: int = 0
    first: str = ""
    skipped: bool = False


def compare(got: Sequence[np.ndarray], expected: Reference) -> Comparison:
    """Compares outputs, which may have any strides, with a reference. NaN equals NaN, infinities must agree."""
    if len(got) != len(expected.outputs):
        return Comparison(False, np.inf, f"got {len(got)} outputs, expected {len(expected.outputs)}")
    worst, problems = 0.0, list[str]()
    for i, (array, wanted) in enumerate(zip(got, expected.outputs, strict=True)):
        if array.shape != wanted.shape or array.dtype != wanted.dtype:
            worst = np.inf
            problems.append(f"out{i} is {array.dtype}{list(array.shape)}, "
                            f"expected {wanted.dtype}{list(wanted.shape)}")  # fmt: skip
            continue
        if not unequal(array, wanted).any():
            continue
        wrong = _compare_one(array, expected, i)
        worst = max(worst, wrong.largest / expected.scale(i))
        if wrong.count:
            count = f"at least {wrong.count}" if wrong.skipped else str(wrong.count)
            problems.append(f"out{i}{wrong.first}; {count} of {array.size} elements are wrong")
    return Comparison(not problems, worst, "; ".join(problems))


def _compare_one(got: np.ndarray, expected: Reference, i: int) -> _Wrong:
    """What is wrong with an output whose bits are not all as expected."""
    wrong = _Wrong()
    allowed, wanted = expected.allowed[i], expected.outputs[i]
    for k, index in enumerate(allowed.parts if allowed else [(...,)]):
        a, b = got[index], wanted[index]
        differs = unequal(a, b)
        if not differs.any():
            continue
        apart = difference(a, b)
        tolerance = None
        if allowed is None:
            beyond = differs & ~(_is_nan(a) & _is_nan(b))
        else:
            if wrong.count:  # what is wrong already need not be judged to the end
                wrong.largest = max(wrong.largest, float(apart.max(initial=0)))
                wrong.skipped = True
                continue
            beyond = differs
            for tolerance in allowed.growing(k):
                beyond = _beyond(differs, apart, tolerance, b)
                if not beyond.any():
                    break
            apart = np.where(np.isinf(tolerance), 0, apart) if tolerance is not None else apart
        wrong.largest = max(wrong.largest, float(apart.max(initial=0)))
        count = int(beyond.sum())
        if count and not wrong.count:
            wrong.first = _describe(beyond, a, b, tolerance, index)
        wrong.count += count
    return wrong


def _beyond(differs: np.ndarray, apart: np.ndarray, tolerance: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Which elements are off by more than the tolerance."""
    if dtype_of(expected).is_float:
        return apart > tolerance
    beyond = differs & ((apart > tolerance) | (tolerance == 0))
    # As many integers as the perturbed runs changed are forgiven, if they are off by no more than the largest change.
    forgiven = beyond & (apart <= float(tolerance.max(initial=0)))
    return beyond & ~forgiven if int(forgiven.sum()) <= int((tolerance > 0).sum()) else beyond


def _describe(
    beyond: np.ndarray, got: np.ndarray, expected: np.ndarray, tolerance: np.ndarray | None, index: Index
) -> str:
    """The first wrong element of a part: where in the output, its value, the value expected."""
    at = tuple(int(i) for i in np.unravel_index(int(beyond.argmax()), beyond.shape))
    starts = [s.start or 0 if isinstance(s, slice) else 0 for s in index]
    where = [a + (starts[axis] if axis < len(starts) else 0) for axis, a in enumerate(at)]
    margin = "" if tolerance is None else f" +- {float(tolerance[at]):.3g}"
    return f"{where} is {_show(got[at])}, expected {_show(expected[at])}{margin}"


def unequal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where the bits differ."""
    bits = np.dtype(f"u{b.dtype.itemsize}")
    return np.asarray(a.view(bits) != b.view(bits))


def difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|a - b| in f32 (f64 for f64 and for integers), with equal infinities and NaNs at distance 0."""
    if a.dtype == np.bool_:
        return np.asarray(a != b).astype(np.float64)
    if not dtype_of(a).is_float:
        return np.asarray(np.abs(a.astype(np.float64) - b.astype(np.float64)))
    with np.errstate(all="ignore"):
        a, b = widen(a), widen(b)
        apart = np.asarray(np.abs(a - b))
        odd = np.isnan(apart)
        if odd.any():
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            apart[odd & same] = 0
            apart[odd & ~same] = np.inf
        return apart


def _is_nan(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.isnan(widen(x))) if dtype_of(x).is_float else np.zeros(x.shape, np.bool_)


def _show(value: np.generic) -> str:
    """A value with its bits, so that -0.0, NaNs and rounding show."""
    bits = int.from_bytes(value.tobytes(), "little")
    return f"{value} (0x{bits:0{2 * value.dtype.itemsize}x})"
