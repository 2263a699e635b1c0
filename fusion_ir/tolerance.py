"""What a kernel's outputs are compared with, and how closely.

Outputs that only exact ops lead to must agree bit for bit (NaN payloads aside). Elsewhere the graph is evaluated again
with errors of the largest allowed size put in at every inexact node (`fusion_ir.perturb`), and an element may be off by
as much as in the worst of these runs. The tolerance of an element is the largest of

* its own deviation in the perturbed runs, which already holds the factor `SAFETY`;
* the lower quartile of the deviations around it, as errors may by chance have cancelled in every run;
* one ulp of the output's dtype at the element's magnitude, as rounding may have hidden the perturbation.

Integers and bools behind inexact nodes (`exp(x) > 1`, argmax of sums) may differ where a perturbed run differed, by as
much; and as many elements again, for errors that add up differently, by no more than the largest such difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fusion_ir.graph import Graph
from fusion_ir.interpreter import blocks, dense, evaluate
from fusion_ir.numerics import dtype_of, ulp, widen
from fusion_ir.perturb import BY_VALUE, EXACT, Perturbation, patterns

_NEIGHBOURS = 64


@dataclass(frozen=True, slots=True)
class Reference:
    """The outputs expected, dense, and per output the absolute tolerance of each element; None: bit for bit.

    A tolerance of infinity means that anything goes there. Zeros mean equal values, where zeros of either sign are
    equal.
    """

    outputs: list[np.ndarray]
    atol: list[np.ndarray | None]


@dataclass(frozen=True, slots=True)
class Comparison:
    """`max_rel_error`: the largest difference over the largest magnitude expected, of the worst output; infinite where
    a value is wrongly finite, infinite or NaN. `detail`: "" or the first element beyond tolerance."""

    ok: bool
    max_rel_error: float
    detail: str


def reference(graph: Graph, inputs: Sequence[np.ndarray], runs: int = 5) -> Reference:
    """The interpreter's outputs, with tolerances from at most `runs` perturbed evaluations (2 or more). Raises
    InputError.

    Graphs without inexact nodes take one, with one inexact node two.
    """
    base = evaluate(graph, inputs)
    first = Perturbation(patterns(1, runs)[0])
    run_values = evaluate(graph, inputs, first)
    levels = [first.exactness.get(o.node, EXACT) for o in graph.outputs]
    loose = [i for i, level in enumerate(levels) if level > BY_VALUE]
    once = {i: _once(base[i], run_values[i]) for i in loose}
    deviations = {i: np.zeros(base[i][once[i]].shape, _error_dtype(base[i])) for i in loose}
    for run, pattern in enumerate(patterns(first.inexact, runs) if loose else []):
        if run:
            run_values = evaluate(graph, inputs, Perturbation(pattern))
        for i in loose:
            _deviate(deviations[i], run_values[i][once[i]], base[i][once[i]])
    atol: list[np.ndarray | None] = []
    for i, (expected, level) in enumerate(zip(base, levels, strict=True)):
        if level > BY_VALUE:
            _loosen(deviations[i], expected[once[i]])
            atol.append(np.broadcast_to(deviations[i], expected.shape))
        else:
            atol.append(None if level == EXACT else np.broadcast_to(np.float32(0), expected.shape))
    return Reference([dense(v) for v in base], atol)


def _once(expected: np.ndarray, value: np.ndarray) -> tuple[slice, ...]:
    """What is left of both without the axes on which they repeat."""
    repeats = [p == q == 0 for p, q in zip(expected.strides, value.strides, strict=True)]
    return tuple(slice(1) if r else slice(None) for r in repeats)


def _error_dtype(x: np.ndarray) -> np.dtype:
    """In which differences are held: f32, but f64 for f64 and for integers."""
    return widen(x[..., :0]).dtype if dtype_of(x).is_float and x.ndim else np.dtype(np.float64)


def _deviate(deviation: np.ndarray, value: np.ndarray, expected: np.ndarray) -> None:
    """Raises `deviation` to |value - expected| where that is more."""
    for block in blocks(deviation.shape):
        np.maximum(deviation[block], _difference(value[block], expected[block]), out=deviation[block])


def _loosen(deviation: np.ndarray, expected: np.ndarray) -> None:
    """Makes tolerances of deviations, see the module; those of integers stay."""
    if not dtype_of(expected).is_float:
        return
    for block in blocks(deviation.shape):
        own = deviation[block]
        np.maximum(np.maximum(own, _around(own)), ulp(expected[block]), out=own)


def _difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|a - b| in f32 (f64 for f64 and for integers), with equal infinities and NaNs at distance 0."""
    if a.dtype == np.bool_:
        return (a != b).astype(np.float64)
    if not dtype_of(a).is_float:
        return np.abs(a.astype(np.float64) - b.astype(np.float64))
    with np.errstate(all="ignore"):
        a, b = widen(a), widen(b)
        difference = np.asarray(np.abs(a - b))
        odd = np.isnan(difference)
        if odd.any():
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            difference[odd & same] = 0
            difference[odd & ~same] = np.inf
        return difference


def _around(deviation: np.ndarray) -> np.ndarray:
    """Per element the lower quartile of the `_NEIGHBOURS` in its stretch of memory."""
    if not deviation.size:
        return deviation
    flat = deviation.reshape(-1)
    padded = np.pad(np.where(np.isfinite(flat), flat, flat.dtype.type(0)), (0, -flat.size % _NEIGHBOURS), mode="wrap")
    quarter = _NEIGHBOURS // 4
    lower = np.partition(padded.reshape(-1, _NEIGHBOURS), quarter, axis=1)[:, quarter]
    return np.repeat(lower, _NEIGHBOURS)[: flat.size].reshape(deviation.shape)


def compare(got: Sequence[np.ndarray], expected: Reference) -> Comparison:
    """Compares outputs, which may have any strides, with a reference. NaN equals NaN, infinities must agree."""
    if len(got) != len(expected.outputs):
        return Comparison(False, np.inf, f"got {len(got)} outputs, expected {len(expected.outputs)}")
    worst, problems = 0.0, list[str]()
    for i, (array, reference_, atol) in enumerate(zip(got, expected.outputs, expected.atol, strict=True)):
        if array.shape != reference_.shape or array.dtype != reference_.dtype:
            worst = np.inf
            problems.append(f"out{i} is {array.dtype}{list(array.shape)}, "
                            f"expected {reference_.dtype}{list(reference_.shape)}")  # fmt: skip
            continue
        error, problem = _compare_one(f"out{i}", array, reference_, atol)
        worst = max(worst, error)
        problems.extend([problem] if problem else [])
    return Comparison(not problems, worst, "; ".join(problems))


def _compare_one(name: str, got: np.ndarray, expected: np.ndarray, atol: np.ndarray | None) -> tuple[float, str]:
    """Largest relative error, and what is wrong with one output or ""."""
    bits = np.dtype(f"u{expected.dtype.itemsize}")
    unequal = got.view(bits) != expected.view(bits)
    if not unequal.any():
        return 0.0, ""
    difference = _difference(got, expected)
    if atol is None:
        beyond = unequal & ~(_is_nan(got) & _is_nan(expected))
    elif dtype_of(expected).is_float:
        beyond = difference > atol
    else:
        beyond = _beyond_spares(unequal & ((difference > atol) | (atol == 0)), difference, atol)
    error = _relative(difference if atol is None else np.where(np.isinf(atol), 0, difference), expected)
    count = int(beyond.sum())
    if not count:
        return error, ""
    index = tuple(int(i) for i in np.unravel_index(int(beyond.argmax()), beyond.shape))
    allowed = "" if atol is None else f" +- {float(atol[index]):.3g}"
    first = f"{name}{list(index)} is {_show(got[index])}, expected {_show(expected[index])}{allowed}"
    return error, f"{first}; {count} of {beyond.size} elements are wrong"


def _beyond_spares(beyond: np.ndarray, difference: np.ndarray, atol: np.ndarray) -> np.ndarray:
    """Forgives as many integers as the perturbed runs changed, if they are off by no more than the largest change."""
    changed = int((atol > 0).sum())
    forgiven = beyond & (difference <= float(atol.max(initial=0)))
    return beyond & ~forgiven if int(forgiven.sum()) <= changed else beyond


def _relative(difference: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference over the largest finite magnitude expected (over 1 where that is 0)."""
    largest = float(difference.max(initial=0))
    magnitude = np.abs(widen(expected).astype(np.float64, copy=False))
    scale = float(np.where(np.isfinite(magnitude), magnitude, 0).max(initial=0))
    return largest / (scale or 1.0)


def _is_nan(x: np.ndarray) -> np.ndarray:
    return np.isnan(widen(x)) if dtype_of(x).is_float else np.zeros(x.shape, np.bool_)


def _show(value: np.generic) -> str:
    """A value with its bits, so that -0.0, NaNs and rounding show."""
    bits = int.from_bytes(value.tobytes(), "little")
    return f"{value} (0x{bits:0{2 * value.dtype.itemsize}x})"
