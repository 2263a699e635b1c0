"""Comparison of a graph of the corpus, or of a plan of it, with its PyTorch function, and the tolerance for it.

The truth is the result of the PyTorch function over the same inputs in f64. An element may be off by the sum of

* the error of a correct kernel: the tolerance of `fusion_ir.accuracy.tolerance`, from perturbed runs of the
  interpreter, and an ulp where that asks for equal bits; twice for a plan, which is held to the interpreter already;
* the error of PyTorch itself: the largest deviation, in this output over a few draws of the inputs, of the PyTorch
  function in the case's dtype from its f64 results. It stands for the roundings between ops, which perturbed runs do
  not move.

In f64 there is nothing more exact to compare with: PyTorch's deviation is taken to be that of f32, smaller by as much
as an ulp is. So a graph that means something else fails in f64, by many orders of magnitude; and one that loses more
than PyTorch does fails in its own dtype.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.corpus.case import Case, Sizes
from benchmarks.corpus.pytorch import to_numpy, to_torch, torch
from fusion_ir.accuracy.comparison import Reference
from fusion_ir.arithmetic.conversions import dtype_of, round_to, ulp, widen
from fusion_ir.dtype import DType, f32, f64

DRAWS = 8  # of the inputs, for what PyTorch errs by: an output of one element may come out exact once
_FINER = float(np.finfo(np.float64).eps / np.finfo(np.float32).eps)

Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class Truth:
    """PyTorch's outputs in f64, and for each the largest deviation of PyTorch's output in the case's dtype from it."""

    exact: list[np.ndarray]
    deviation: list[float]


def truth(case: Case, dtype: str, sizes: Sizes, arrays: Arrays, draws: int = DRAWS) -> Truth:
    """The truth about `arrays` by the case's PyTorch function, its deviation over `draws` draws. Needs PyTorch."""
    exact = run_torch(case, sizes, [converted(a, f64) for a in arrays])
    deviation = [0.0] * len(exact)
    instance = case.instance(dtype, sizes)
    rough, finer = (f32, _FINER) if dtype == "f64" else (None, 1.0)
    for seed in range(draws):
        drawn = arrays if seed == 0 else instance.sample(seed)
        theirs = run_torch(case, sizes, [converted(a, rough) for a in drawn] if rough else drawn)
        fine = exact if seed == 0 else run_torch(case, sizes, [converted(a, f64) for a in drawn])
        for i, (a, b) in enumerate(zip(theirs, fine, strict=True)):
            deviation[i] = max(deviation[i], finer * largest_difference(a, b))
    return Truth(exact, deviation)


def run_torch(case: Case, sizes: Sizes, arrays: Arrays) -> list[np.ndarray]:
    """The outputs of the function that the case's graph agrees with."""
    function = case.peer(sizes, case.agreeing or case.torch)
    with torch.no_grad():
        return [to_numpy(t) for t in function(*(to_torch(a) for a in arrays))]


def converted(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Floats in `dtype`, with the array's order of axes; others as they are."""
    if not dtype_of(array).is_float:
        return array
    out = np.empty_like(array, dtype=dtype.numpy)
    out[...] = round_to(widen(array), dtype)
    return out


def largest_difference(a: np.ndarray, exact: np.ndarray) -> float:
    """Largest absolute difference of two elements; infinite where one is finite and the other is not."""
    return float(_difference(a, exact).max(initial=0.0))


def _difference(a: np.ndarray, exact: np.ndarray) -> np.ndarray:
    wide = widen(a).astype(np.float64, copy=False)
    with np.errstate(invalid="ignore"):
        difference = np.abs(wide - exact)
    same = (wide == exact) | (np.isnan(wide) & np.isnan(exact))
    return np.where(same, 0.0, np.where(np.isnan(difference), np.inf, difference))


def disagreement(got: Arrays, said: Truth, own: Reference, times: int = 1) -> str:
    """The worst element of the first wrong output of a graph as a message, "" for none. own: the interpreter's
    tolerances on the inputs of `got`; times: how often they count, see the module."""
    known = zip(got, said.exact, said.deviation, own.outputs, own.atol, strict=True)
    for i, (array, exact, deviation, expected, kernel) in enumerate(known):
        if array.shape != exact.shape:
            return f"out{i} is {list(array.shape)}, PyTorch's is {list(exact.shape)}"
        allowed = times * (ulp(expected) if kernel is None else kernel).astype(np.float64) + deviation
        off = _difference(array, exact)
        beyond = ~(off <= allowed)
        if beyond.any():
            worst = np.unravel_index(int(np.argmax(off - allowed)), off.shape)
            return (
                f"out{i}{[int(p) for p in worst]} is {array[worst]}, PyTorch says {exact[worst]:.9g} "
                f"+- {allowed[worst]:.3g}; {int(beyond.sum())} of {off.size} elements are wrong"
            )
    return ""
