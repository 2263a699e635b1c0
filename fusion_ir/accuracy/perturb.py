"""Perturbed evaluation: a graph's possible outputs when every inexact step errs by as much as it is allowed to.

`Perturbation` is a step of `fusion_ir.reference.evaluation`. At each inexact node it adds, per element, plus or minus
`SAFETY` times the error that a correct kernel may make there, before the value is rounded to the node's dtype:

* a pointwise op errs by `ulps` of its row, and half an ulp for the reference's own rounding, but not where it is 0:
  kernels hit sin(0), log(1) and the like exactly;
* a sum, product, mean, variance or contraction errs by the effect of another order of its terms, and by halves of the
  least number where it rounds denormal values (`fusion_ir.accuracy.sum_error`), unless it is exact in any order.

Where inexact values are rounded to a narrower float, one near a tie may go either way, and is off by an ulp of the
narrow dtype then: far more than the error that tips it. Where such values are summed, their jumps may cancel at one
element. Which values tip differs from kernel to kernel, but an error that a row has in common (of a sum that divides
it) tips one set of values in all runs of one direction. So there each value is moved by a random share of `TIPPING`
ulps of the wider dtype before it is rounded, about `SAFETY` times the error of a sum of a thousand terms: each run
draws afresh which of the values near a tie go which way.

The zero that a sum comes to may have either sign: sums may start from +0, from -0 or from the first term, and a factor
that is taken out of one, or an axis of one element that is not summed at all, changes it, too. Where a value depends on
that, such zeros have the signs of errors.

Roundings that rewrites move elsewhere: `fusion_ir.accuracy.displaced_rounding`.

Which signs are tried: `fusion_ir.accuracy.error_patterns`.
"""

import threading
from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from fusion_ir.accuracy.displaced_rounding import Rounding, elsewhere
from fusion_ir.accuracy.error_patterns import Moves, Pattern, Signs, Tips, ulp_of_one
from fusion_ir.accuracy.partial_range import leaves_range
from fusion_ir.accuracy.sum_cache import SumCache
from fusion_ir.accuracy.sum_error import contraction_error, is_exact_contract, is_exact_sum, most_terms, sum_with_error
from fusion_ir.arithmetic.cache_blocks import BLOCK_ELEMENTS
from fusion_ir.arithmetic.conversions import dtype_of, round_to, widen
from fusion_ir.arithmetic.threads import blockwise, side_by_side
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, compute_dtype
from fusion_ir.ops import OPS, OpKind, kind_of
from fusion_ir.ops.contract import sums_in_any_order
from fusion_ir.reference.evaluation import Later
from fusion_ir.reference.node_value import evaluate_node, pointwise

EXACT = 0  # the same bits on every target
BY_VALUE = 1  # equal, but a zero may have either sign: sums may start from +0 or from the first term
BY_SIGN = 2  # as the language says where such zeros have the signs that it gives them: 1 / -0.0 is not 1 / 0.0
INEXACT = 3

_SUMS = (OpKind.REDUCTION, OpKind.SCAN, OpKind.SCATTER, OpKind.CONTRACT)
_FLOAT_SUMS = ("sum", "prod", "mean", "var", "cumsum", "scatter_sum")


class Exactness:
    """A step that computes what the language says, and notes on these data which nodes are exact.

    The order of pieces makes no difference: to whatever level an operand rises in some piece, the node rises there.
    reordered: sums of few products, which the language puts in order, too, may be in any order.
    """

    def __init__(self, sums: SumCache | None = None, reordered: bool = False) -> None:
        self._sums, self._reordered = sums or SumCache(), reordered
        self._own: dict[Node, int] = {}  # what the node itself adds, the worst of its pieces
        self._levels: dict[Node, int] = {}  # so far
        self._with_zeros: set[Node] = set()  # sums in any order that came to zero somewhere
        self._lock = threading.Lock()

    def __call__(self, node: Node, as_large: Node, operands: tuple[np.ndarray, ...], piece: int) -> np.ndarray:
        inherited = max((self._levels.get(a, EXACT) for a in node.args), default=EXACT)
        own = self._own.get(node, EXACT)
        if own < INEXACT:
            with np.errstate(all="ignore"):
                own = _own_exactness(node, operands, inherited, self._reordered)
        with self._lock:
            self._own[node] = max(self._own.get(node, EXACT), own)
            self._levels[node] = max(self._levels.get(node, EXACT), self._own[node], inherited)
        # Contractions whose sums run in any order are whole: what they are computed from has its final level.
        if _any_order(node) and inherited < BY_SIGN:
            value = _narrowed(self._sums.of_contraction(node, piece, *operands), node.dtype)
        else:
            value = evaluate_node(as_large, operands)
        if own > EXACT and kind_of(node) in _SUMS and node not in self._with_zeros and _has_zeros(value):
            self._with_zeros.add(node)
        return value

    def levels(self, graph: Graph, moved: Container[Node] = ()) -> dict[Node, int]:
        """The level of every node after the evaluation: the worst of its own and its operands'. moved: nodes that are
        taken for inexact whatever they hold."""
        levels: dict[Node, int] = {}
        for node in graph.nodes:
            own = INEXACT if node in moved else self._own.get(node, EXACT)
            levels[node] = max([own, *(levels[a] for a in node.args)])
        return levels

    def numbers(self, graph: Graph) -> dict[Node, int]:
        """The nodes that err on their own, numbered."""
        inexact = [node for node in graph.nodes if self._own.get(node, EXACT) == INEXACT]
        return {node: number for number, node in enumerate(inexact)}

    def signless(self, graph: Graph) -> set[Node]:
        """Sums that came to zeros, which may have either sign, and what is computed from them; none where no value
        depends on that."""
        found, matters = set[Node](), False
        for node in graph.nodes:
            matters = matters or any(node.args[k] in found for k in (OPS[node.op].zero_signs if node.args else ()))
            if node in self._with_zeros or not found.isdisjoint(node.args):
                found.add(node)
        return found if matters else set()

    def roundings(self, graph: Graph) -> dict[Node, int]:
        """The nodes that round an inexact value to a narrower float which is summed later, numbered."""
        levels, summed = self.levels(graph), _summed(graph)
        tipping = [n for n in graph.nodes if n in summed and levels[n] == INEXACT and self._narrows(n)]
        return {node: number for number, node in enumerate(tipping)}

    def _narrows(self, node: Node) -> bool:
        """Whether the node rounds what may be off by less than an ulp of its float dtype."""
        if not node.dtype.is_float:
            return False
        if node.op == "cast":
            return node.args[0].dtype.is_float and node.args[0].dtype.bytes > node.dtype.bytes
        return self._own.get(node, EXACT) == INEXACT and compute_dtype(node.dtype) != node.dtype


def sums_of(graph: Graph, tipping: Mapping[Node, int]) -> set[Node]:
    """The nodes that hold sums of what is computed from `tipping`, or are computed from such sums."""
    tipped, found = set(tipping), set[Node]()
    for node in graph.nodes:
        if not found.isdisjoint(node.args) or (kind_of(node) in _SUMS and not tipped.isdisjoint(node.args)):
            found.add(node)
        elif not tipped.isdisjoint(node.args):
            tipped.add(node)
    return found


def _summed(graph: Graph) -> set[Node]:
    """The nodes that some sum is computed from."""
    found = set[Node]()
    for node in reversed(graph.nodes):
        if any(kind_of(user) in _SUMS or user in found for user in graph.users[node]):
            found.add(node)
    return found


def _own_exactness(node: Node, operands: tuple[np.ndarray, ...], inherited: int, reordered: bool) -> int:
    row = OPS[node.op]
    if row.kind is OpKind.POINTWISE:
        if row.ulps:
            return INEXACT
        return BY_SIGN if inherited >= BY_VALUE and any(_has_zeros(operands[k]) for k in row.zero_signs) else EXACT
    if node.op in _FLOAT_SUMS and node.dtype.is_float:
        if most_terms(node, *operands) <= 1:
            return BY_VALUE
        return BY_VALUE if inherited < INEXACT and is_exact_sum(node, *operands) else INEXACT
    if _any_order(node) or (reordered and kind_of(node) is OpKind.CONTRACT and node.dtype.is_float):
        return BY_VALUE if inherited < INEXACT and is_exact_contract(node, *operands) else INEXACT
    return EXACT


def _has_zeros(x: np.ndarray) -> bool:
    """Whether floats have zeros of either sign among them; nothing else has signed ones."""
    if not dtype_of(x).is_float:
        return False
    bits = np.asarray(x, order="C").view(f"u{x.dtype.itemsize}")
    return bool((bits & bits.dtype.type((1 << 8 * x.dtype.itemsize - 1) - 1)).min(initial=1) == 0)


def _narrowed(value: np.ndarray, dtype: DType) -> np.ndarray:
    """`round_to`; a large value is rounded by all threads."""
    if value.dtype == dtype.numpy or not value.flags.c_contiguous:
        return round_to(value, dtype)

    def narrow(x: np.ndarray) -> np.ndarray:
        return round_to(x, dtype)

    return blockwise(narrow, dtype.numpy, value)


def _any_order(node: Node) -> bool:
    """Whether the node is a contraction whose sums may run in any order, with different bits."""
    return kind_of(node) is OpKind.CONTRACT and sums_in_any_order(node)


class Perturbation:
    """A step that errs by `pattern` at each of the nodes in `numbers`, tips `roundings`, rounds elsewhere what is
    `moved`, and gives zeros of sums that are `signless` the signs of errors."""

    def __init__(
        self,
        pattern: Pattern,
        numbers: Mapping[Node, int],
        roundings: Mapping[Node, int],
        moved: Mapping[Node, Rounding],
        sums: SumCache,
        signless: Collection[Node] = (),
    ) -> None:
        self._pattern, self._numbers, self._roundings, self._sums = pattern, numbers, roundings, sums
        self._moved = moved
        self._signless = {node: number for number, node in enumerate(signless) if kind_of(node) in _SUMS}

    def __call__(self, node: Node, as_large: Node, operands: tuple[np.ndarray, ...], piece: int) -> np.ndarray | Later:
        value = self._value(node, as_large, operands, piece)
        rounding, signless = self._moved.get(node), self._signless.get(node)
        if rounding is None and signless is None:
            return value
        whole = value.whole() if isinstance(value, _RoundedLater) else np.asarray(value)
        if signless is not None:
            whole = _with_zeros_of(whole, Signs(self._pattern, signless, piece, None))
        if rounding is None:
            return whole
        with np.errstate(all="ignore"):
            moves = Moves(self._pattern, rounding.number, piece)
            return elsewhere(as_large, operands, whole, rounding.dtype, moves)

    def _value(self, node: Node, as_large: Node, operands: tuple[np.ndarray, ...], piece: int) -> np.ndarray | Later:
        """The node's value in this run, before a moved rounding and signs of zeros."""
        number, rounding = self._numbers.get(node), self._roundings.get(node)
        tips = None if rounding is None else Tips(self._pattern, rounding, piece)
        with np.errstate(all="ignore"):
            if number is None:
                if tips is not None:
                    return _cast(as_large, operands[0], tips)
                return unperturbed(node, as_large, operands, piece, self._sums)
            signs = Signs(self._pattern, number, piece, tips)
            if OPS[node.op].kind is OpKind.POINTWISE:
                return _pointwise(as_large, operands, signs)
            found = summed(node, as_large, operands, piece, self._sums)
            if found is None:
                return evaluate_node(as_large, operands)
            found = _in_other_order(as_large, operands, *found)
            large = found[0].size > BLOCK_ELEMENTS and all(x.flags.c_contiguous for x in found)
            return _RoundedLater(as_large, *found, signs) if large else _rounded(as_large, *found, signs)


def _with_zeros_of(value: np.ndarray, signs: Signs) -> np.ndarray:
    """The value, with zeros that have the signs of `signs`."""
    zeros = value == 0
    if not zeros.any():
        return value
    return np.where(zeros, np.copysign(value.dtype.type(0), signs.like(widen(value))).astype(value.dtype), value)


def _in_other_order(
    node: Node, operands: tuple[np.ndarray, ...], base: np.ndarray, error: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A sum and its error, where some orders leave the range of floats and others do not: in an order of the other kind
    than the one that gave `base`. There the error is 0."""
    leaving = leaves_range(node, operands, error.dtype)
    if leaving is None or not leaving.any():
        return base, error
    other = np.where(np.isfinite(base), np.inf, 0).astype(base.dtype)
    return np.where(leaving, other, base), np.where(leaving, 0, error).astype(error.dtype)


def unperturbed(node: Node, as_large: Node, operands: tuple[np.ndarray, ...], piece: int, sums: SumCache) -> np.ndarray:
    """The value of a node that does not err on its own; a sum that `sums` shares is computed once for all runs."""
    if not sums.shares(node) or kind_of(node) not in _SUMS:
        return evaluate_node(as_large, operands)
    if _any_order(node):
        return _narrowed(sums.of_contraction(node, piece, *operands), node.dtype)
    return sums.once("value", node, piece, lambda: (evaluate_node(as_large, operands),))[0]


def summed(
    node: Node, as_large: Node, operands: tuple[np.ndarray, ...], piece: int, sums: SumCache
) -> tuple[np.ndarray, np.ndarray] | None:
    """`sum_with_error`, computed once for all runs where `sums` shares the node."""
    if not sums.shares(node):
        return sum_with_error(as_large, *operands)
    if kind_of(node) is not OpKind.CONTRACT:
        found = sums.once("sum", node, piece, lambda: sum_with_error(as_large, *operands) or ())
        return (found[0], found[1]) if found else None
    value = sums.of_contraction(node, piece, *operands)
    (error,) = sums.once("error", node, piece, lambda: (contraction_error(node, *operands),))
    return value, error


def _cast(node: Node, x: np.ndarray, tips: Tips) -> np.ndarray:
    once = widen(x[tuple(slice(1) if s == 0 else slice(None) for s in x.strides)])
    return np.broadcast_to(round_to(tips.moved(once), node.dtype), node.sizes)


def _pointwise(node: Node, operands: tuple[np.ndarray, ...], signs: Signs) -> np.ndarray:
    wide = pointwise(node, operands, compute_dtype(node.dtype))
    allowed = wide.dtype.type((OPS[node.op].ulps + 0.5) * ulp_of_one(wide.dtype))
    once = wide[tuple(slice(1) if s == 0 else slice(None) for s in wide.strides)]
    error = np.asarray(np.abs(once))
    zero = error == 0
    np.maximum(error, np.finfo(wide.dtype).smallest_normal, out=error)  # below, an ulp stays as large
    error *= allowed
    error[zero] = 0
    return np.broadcast_to(_rounded(node, once, error, signs), node.sizes)


@dataclass(frozen=True, slots=True)
class _RoundedLater:
    """`_rounded` of a large dense value with a dense error, computed where it is read."""

    node: Node
    value: np.ndarray
    error: np.ndarray
    signs: Signs

    def piece(self, axis: int, low: int, high: int) -> np.ndarray:
        rows = (*(slice(None),) * axis, slice(low, high))
        first = low * prod(self.value.shape[axis + 1 :])
        with np.errstate(all="ignore"):
            return _rounded(self.node, self.value[rows], self.error[rows], self.signs, first)

    def whole(self) -> np.ndarray:
        result = np.empty(self.value.shape, self.node.dtype.numpy)
        flat = self.value.reshape(-1), self.error.reshape(-1), result.reshape(-1)

        def move(first: int) -> None:
            own, off, into = (x[first : first + BLOCK_ELEMENTS] for x in flat)
            into[...] = _rounded(self.node, own, off, self.signs, first)

        with np.errstate(all="ignore"):
            side_by_side(move, range(0, self.value.size, BLOCK_ELEMENTS))
        return result


def _rounded(node: Node, value: np.ndarray, error: np.ndarray, signs: Signs, first: int = 0) -> np.ndarray:
    """value +- SAFETY error, rounded to the node's dtype, to either side where that tips; infinities stay.

    first: the index at which `value` begins, where it is a stretch of a larger one.
    """
    moved = np.asarray(error.astype(value.dtype, copy=False) * signs.like(value, first))
    moved += value
    np.copyto(moved, value, where=~np.isfinite(value))
    if node.op == "var":  # of few of the least numbers: a mean of squares all the same
        np.maximum(moved, 0, out=moved)
    return round_to(moved if signs.tips is None else signs.tips.moved(moved, first), node.dtype)
