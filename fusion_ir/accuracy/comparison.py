"""Comparing a kernel's outputs with those expected: every element of every output."""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import EllipsisType
from typing import Protocol

import numpy as np

from fusion_ir.arithmetic.cache_blocks import blocks
from fusion_ir.arithmetic.conversions import dtype_of, widen
from fusion_ir.arithmetic.threads import blockwise, side_by_side

Index = tuple[slice | EllipsisType, ...]


NUMBER = r"\S+"
_DIFFERENCE = re.compile(
    rf"out(?P<output>\d+)\[(?P<index>[\d, ]*)\] is (?P<got>{NUMBER}) \(\S+\), expected (?P<expected>{NUMBER}) \(\S+\)"
    rf"(?: \+- (?P<allowed>{NUMBER}) \(bound (?P<bound>{NUMBER}), perturbed (?P<perturbed>{NUMBER})\))?"
)


@dataclass(frozen=True, slots=True)
class Difference:
    """One element that is wrong, as `Comparison.detail` tells of it: where, both values, and both tolerances, of which
    the larger counts: what an error bound allows, and what perturbed runs do; 0 where values must be equal."""

    output: int
    index: tuple[int, ...]
    got: float
    expected: float
    bound: float
    perturbed: float

    @classmethod
    def parse(cls, detail: str) -> "Difference | None":
        """The first one in a text, if there is any."""
        found = _DIFFERENCE.search(detail)
        if found is None:
            return None
        index = tuple(int(i) for i in found["index"].split(",") if i.strip())
        got, expected = (_number(found[name]) for name in ("got", "expected"))
        bound, perturbed = (float(found[name] or 0) for name in ("bound", "perturbed"))
        return cls(int(found["output"]), index, got, expected, bound, perturbed)


def _number(text: str) -> float:
    return float(text == "True") if text in ("True", "False") else float(text)


class Allowed(Protocol):
    """How far an output may be off: absolute, per element, and known better and better."""

    @property
    def parts(self) -> Sequence[Index]:
        """Indices that cut the output into parts."""
        ...

    def growing(self, part: int) -> Iterator[np.ndarray]:
        """Tolerances of one part, each at least as large as the one before; the last one counts. Infinity allows any
        value; 0 demands an equal value, zeros of either sign being equal."""
        ...

    def further(self, part: int, apart: np.ndarray) -> Iterator[np.ndarray]:
        """Tolerances larger than those of `growing`, where they may yet cover differences as large as `apart` (0 where
        an element is right already); empty where they cannot."""
        ...

    def others(self, part: int) -> tuple[int, np.ndarray]:
        """How many elements of a part may be off by more than their tolerance, as far as that is known, and by how much
        each of them may be."""
        ...

    def both(self, part: int, at: tuple[int, ...]) -> tuple[float, float]:
        """The tolerances of element `at` of a part: by the error bound, and by perturbed runs; as far as computed."""
        ...


class Fixed:
    """A tolerance that is known from the start, for an output that is one part."""

    parts: Sequence[Index] = [(...,)]

    def __init__(self, tolerance: np.ndarray) -> None:
        self._tolerance = tolerance

    def growing(self, part: int) -> Iterator[np.ndarray]:
        yield self._tolerance

    def further(self, part: int, apart: np.ndarray) -> Iterator[np.ndarray]:
        return iter(())

    def others(self, part: int) -> tuple[int, np.ndarray]:
        return 0, self._tolerance

    def both(self, part: int, at: tuple[int, ...]) -> tuple[float, float]:
        return float(self._tolerance[at]), float(self._tolerance[at])


class Reference:
    """The expected outputs, dense, and the tolerances of each; None: bit for bit."""

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
            output = self.outputs[i]
            found = side_by_side(lambda block: _largest_finite(output[block]), blocks(output.shape))
            self._scales[i] = max(found, default=0.0) or 1.0
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
    """The verdict on one output, or on one part of it: the largest difference, how many elements are beyond tolerance,
    and a description of the first. skipped: parts were not judged to the end, behind one that is wrong."""

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
    """The verdict on an output of which some bits differ; its parts are judged side by side.

    Parts behind the first wrong one are not judged to the end: the output is wrong already.
    """
    allowed, wanted = expected.allowed[i], expected.outputs[i]
    parts = allowed.parts if allowed else [(...,)]
    found_wrong = len(parts)  # the first part known to be wrong

    def judge(k: int) -> tuple[_Wrong, _Wrong] | None:
        """The verdict on part `k`, and the one to use where an earlier part is wrong: the largest difference alone.
        None where all bits are equal."""
        nonlocal found_wrong
        a, b = got[parts[k]], wanted[parts[k]]
        differs = unequal(a, b)
        if not differs.any():
            return None
        apart = difference(a, b)
        plain = _Wrong(_largest(apart), skipped=True)
        tolerance = None
        if allowed is None:
            beyond = differs & ~(_is_nan(a) & _is_nan(b))
        else:
            beyond = differs
            for is_more in (False, True):
                more = allowed.further(k, np.where(beyond, apart, 0)) if is_more else allowed.growing(k)
                for tolerance in more:
                    if found_wrong < k:
                        return plain, plain
                    beyond = _beyond(differs, apart, tolerance, b, partial(allowed.others, k))
                    if not beyond.any():
                        break
            if tolerance is not None and np.isinf(tolerance).any():
                apart = np.where(np.isinf(tolerance), 0, apart)
        count = int(beyond.sum())
        if count:
            with lock:
                found_wrong = min(found_wrong, k)
        first = _describe(beyond, a, b, tolerance, parts[k], partial(_both, allowed, k)) if count else ""
        return _Wrong(_largest(apart), count, first), plain

    lock = threading.Lock()
    wrong = _Wrong()
    for found in side_by_side(judge, range(len(parts))):
        if found is None:
            continue
        part = found[1] if wrong.count else found[0]
        wrong.largest = max(wrong.largest, part.largest)
        wrong.skipped |= part.skipped
        wrong.first = wrong.first or part.first
        wrong.count += part.count
    return wrong


def _largest_finite(x: np.ndarray) -> float:
    """The largest finite magnitude; 0 where no element is finite."""
    wide = widen(x)
    low, high = (float(f(wide, initial=0)) for f in (np.min, np.max))
    if not np.isfinite([low, high]).all():
        finite = np.where(np.isfinite(wide), wide, wide.dtype.type(0))
        low, high = (float(f(finite, initial=0)) for f in (np.min, np.max))
    return max(-low, high)


def _largest(apart: np.ndarray) -> float:
    return float(apart.max(initial=0))


def _beyond(
    differs: np.ndarray,
    apart: np.ndarray,
    tolerance: np.ndarray,
    expected: np.ndarray,
    others: Callable[[], tuple[int, np.ndarray]],
) -> np.ndarray:
    """Mask of the elements that differ by more than the tolerance and are not forgiven. others: gives how many elements
    may be forgiven, and the largest difference of each."""
    beyond = blockwise(np.greater, np.dtype(np.bool_), apart, tolerance)
    if not dtype_of(expected).is_float:
        beyond |= differs & (tolerance == 0)  # also where f64 does not hold the difference
    if not beyond.any():
        return beyond
    count, most = others()
    forgiven = beyond & (apart <= most)
    return beyond & ~forgiven if int(forgiven.sum()) <= count else beyond


def _both(allowed: Allowed | None, part: int, at: tuple[int, ...]) -> tuple[float, float]:
    return (0.0, 0.0) if allowed is None else allowed.both(part, at)


def _describe(
    beyond: np.ndarray,
    got: np.ndarray,
    expected: np.ndarray,
    tolerance: np.ndarray | None,
    index: Index,
    both: Callable[[tuple[int, ...]], tuple[float, float]],
) -> str:
    """The first wrong element of a part: where in the output, its value, the value expected."""
    at = tuple(int(i) for i in np.unravel_index(int(beyond.argmax()), beyond.shape))
    starts = [s.start or 0 if isinstance(s, slice) else 0 for s in index]
    where = [a + (starts[axis] if axis < len(starts) else 0) for axis, a in enumerate(at)]
    margin = ""
    if tolerance is not None:
        bound, perturbed = both(at)
        margin = f" +- {float(tolerance[at]):.3g} (bound {bound:.3g}, perturbed {perturbed:.3g})"
    return f"{where} is {_show(got[at])}, expected {_show(expected[at])}{margin}"


def unequal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Mask of the elements whose bits differ."""
    bits = np.dtype(f"u{b.dtype.itemsize}")
    return blockwise(np.not_equal, np.dtype(np.bool_), a.view(bits), b.view(bits))


def difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|a - b| in f32 (f64 for f64 and for integers), with equal infinities and NaNs at distance 0."""
    narrow = dtype_of(b).is_float and b.dtype != np.float64
    return blockwise(_difference, np.dtype(np.float32 if narrow else np.float64), a, b)


def _difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype == np.bool_:
        return np.asarray(a != b).astype(np.float64)
    if not dtype_of(a).is_float:
        return np.asarray(np.abs(a.astype(np.float64) - b.astype(np.float64)))
    with np.errstate(all="ignore"):
        a, b = widen(a), widen(b)
        apart = np.asarray(np.abs(a - b))
        if np.isnan(apart.max(initial=0)):
            odd = np.isnan(apart)
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
