"""Perturbed evaluation: a graph's possible outputs when every inexact step errs by as much as it is allowed to.

A `Perturbation` is an override of the interpreter. At each inexact node it adds, per element, plus or minus `SAFETY`
times the error that a correct kernel may make there, before the value is rounded to the node's dtype:

* a pointwise op errs by `ulps` of its row, and half an ulp for the reference's own rounding, but not where it is 0:
  kernels hit sin(0), log(1) and the like exactly;
* a sum of n terms in another order by u sqrt(n - 1) sum |x|, where u is half an ulp of one in the accumulate dtype:
  rounding errors of the partial sums are independent, and each is at most u times the sum of magnitudes (Higham,
  "Accuracy and stability of numerical algorithms", chapter 4); products, means, variances and contractions
  accordingly. Where only a few values repeat, the partial sums of a running total round alike again and again, and
  nothing cancels: then by u (n - 1) / 8 sum |x|, which `SAFETY` makes the worst of a running total.

A sum of whole numbers whose magnitudes add up to less than 1/u is exact in any order, and is not perturbed; nor is
such a product.

`patterns` says which signs to try. Random signs per element, and their mirror image: a rounding or a comparison that
some error could tip is tipped by one of the two. Then signs per node, all elements alike: all plus, and so that any
two nodes differ in one of the patterns (the binary digits of their numbers): errors of two nodes that cancel in one
pattern add up in another. These also show what a bias does to a sum.
"""

from dataclasses import dataclass
from math import prod, sqrt

import numpy as np

from fusion_ir.dtype import accumulate_dtype, compute_dtype
from fusion_ir.interpreter import evaluate_node, pointwise
from fusion_ir.node import Node
from fusion_ir.numerics import accumulate, round_to
from fusion_ir.ops import OPS, OpKind
from fusion_ir.ops.contract import ORDERED_PRODUCTS, contract_arrays
from fusion_ir.ops.reductions import rows

SAFETY = 4.0

EXACT = 0  # the same bits on every target
BY_VALUE = 1  # equal, but a zero may have either sign: sums may start from +0 or from the first term
INEXACT = 2

_FLOAT_SUMS = ("sum", "prod", "mean", "var", "cumsum")


@dataclass(frozen=True, slots=True)
class Pattern:
    """Signs of the errors: random per element from `seed`, times `direction`; or per node, by a digit of its number.

    digit: None for random signs; -1 for all plus; else minus where that binary digit of the inexact node's number is 1.
    """

    seed: int = 0
    direction: int = 1
    digit: int | None = None


def patterns(inexact_nodes: int, runs: int) -> list[Pattern]:
    """At most `runs` patterns for a graph with so many inexact nodes, the most telling first."""
    mirrored = [Pattern(0, 1), Pattern(0, -1)]
    digits = [-1, *range((inexact_nodes - 1).bit_length())] if inexact_nodes > 1 else []
    return [*mirrored, *(Pattern(digit=d) for d in digits)][:runs]


class Perturbation:
    """An override for `fusion_ir.interpreter.evaluate`; use each instance once.

    Afterwards `exactness` tells of every node, and `inexact` counts the nodes that were perturbed.
    """

    def __init__(self, pattern: Pattern) -> None:
        self.exactness: dict[Node, int] = {}
        self.inexact = 0
        self._pattern = pattern

    def __call__(self, node: Node, operands: tuple[np.ndarray, ...]) -> np.ndarray | None:
        row = OPS[node.op]
        inherited = max((self.exactness.get(a, EXACT) for a in node.args), default=EXACT)
        own, value = EXACT, None
        with np.errstate(all="ignore"):
            if row.kind is OpKind.POINTWISE and row.ulps:
                own, value = INEXACT, self._pointwise(node, operands)
            elif node.op in _FLOAT_SUMS and node.dtype.is_float:
                own, value = self._sum(node, operands[0])
            elif row.kind is OpKind.CONTRACT and node.dtype.is_float and _products(node) > ORDERED_PRODUCTS:
                own, value = self._contract(node, *operands)
        self.exactness[node] = max(inherited, own)
        return value

    def _pointwise(self, node: Node, operands: tuple[np.ndarray, ...]) -> np.ndarray:
        wide = pointwise(node, operands, compute_dtype(node.dtype))
        allowed = (OPS[node.op].ulps + 0.5) * _ulp_of_one(wide.dtype)
        once = wide[tuple(slice(1) if s == 0 else slice(None) for s in wide.strides)]
        size = np.maximum(np.abs(once), np.finfo(wide.dtype).smallest_normal)  # below, an ulp stays as large
        return np.broadcast_to(self._rounded(node, once, np.where(once == 0, 0, allowed * size)), node.sizes)

    def _sum(self, node: Node, x: np.ndarray) -> tuple[int, np.ndarray | None]:
        wide = accumulate(x)
        u = _ulp_of_one(wide.dtype) / 2
        axes = (node.attr("axis", int),) if node.op == "cumsum" else node.ints("axes")
        count = prod(x.shape[a] for a in axes)
        if count <= 1:
            return BY_VALUE, None
        size = np.abs(wide)
        growth = u * max(sqrt(count - 1), (count - 1) / 8 if _repeats(wide) else 0.0)
        total = size.cumsum(axis=axes[0]) if node.op == "cumsum" else rows(size, axes).sum(axis=-1)
        largest = rows(np.maximum(size, 1), axes).prod(axis=-1) if node.op == "prod" else total
        if node.op in ("sum", "cumsum", "prod") and _all_whole(wide) and bool((largest < 1 / u).all()):
            return BY_VALUE, None
        # The same node in its accumulate dtype: the value before it is rounded.
        base = evaluate_node(Node(node.op, node.args, node.attrs, node.shape, accumulate_dtype(node.dtype)), [x])
        match node.op:
            case "prod":
                error = growth * np.abs(base)
            case "mean":
                error = growth * total / count + u * np.abs(base)
            case "var":  # Welford and two passes: Chan, Golub and LeVeque, "Algorithms for computing the variance"
                mean_error = growth * total / count
                error = (growth + u) * np.abs(base) + mean_error * np.sqrt(np.abs(base)) + np.square(mean_error)
            case _:
                error = growth * total
        return INEXACT, self._rounded(node, base, error)

    def _contract(self, node: Node, a: np.ndarray, b: np.ndarray) -> tuple[int, np.ndarray | None]:
        wide_a, wide_b = accumulate(a), accumulate(b)
        u = _ulp_of_one(wide_a.dtype) / 2
        total = contract_arrays(node, np.abs(wide_a), np.abs(wide_b))
        if _all_whole(wide_a) and _all_whole(wide_b) and bool((total < 1 / u).all()):
            return BY_VALUE, None
        base = contract_arrays(node, a, b)
        n = _products(node)
        growth = u * max(sqrt(n), n / 8 if _repeats(wide_a) and _repeats(wide_b) else 0.0)
        return INEXACT, self._rounded(node, base, growth * total)

    def _rounded(self, node: Node, value: np.ndarray, error: np.ndarray) -> np.ndarray:
        """value +- SAFETY error, rounded to the node's dtype; infinities stay."""
        moved = value + error.astype(value.dtype, copy=False) * self._signs(value)
        return round_to(np.asarray(np.where(np.isfinite(value), moved, value)), node.dtype)

    def _signs(self, value: np.ndarray) -> np.ndarray:
        """SAFETY times the signs of the errors, to broadcast against `value`."""
        number, pattern = self.inexact, self._pattern
        self.inexact += 1
        if pattern.digit is None:
            drawn = np.random.default_rng([pattern.seed, len(self.exactness)]).integers(0, 2, value.shape, np.int8)
            return (drawn * np.int8(2) - np.int8(1)) * value.dtype.type(SAFETY * pattern.direction)
        minus = pattern.digit >= 0 and number >> pattern.digit & 1
        return np.asarray(value.dtype.type(-SAFETY if minus else SAFETY))


def _products(node: Node) -> int:
    """Products per element of a contraction."""
    reduced = node.attr("reduced", int)
    a = node.args[0]
    return prod(a.sizes[i] for i in node.ints("a_axes")[len(node.ints("a_axes")) - reduced :])


def _ulp_of_one(dtype: np.dtype) -> float:
    return float(np.finfo(dtype).eps)


def _repeats(x: np.ndarray) -> bool:
    """Whether the tensor seems to hold a few values only, by a sample of it."""
    sample = x.flat[:4096]
    return sample.size > 256 and np.unique(sample).size <= 64


def _all_whole(x: np.ndarray) -> bool:
    return bool((x == np.rint(x)).all())
