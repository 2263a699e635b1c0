"""Error bounds of pointwise ops, from errors of their operands and of the ops (`fusion_ir.accuracy.error_bound`)."""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import reduce
from itertools import product
from math import pi

import numpy as np

from fusion_ir.accuracy.comparison import difference
from fusion_ir.accuracy.erring_value import (
    EVEN,
    Error,
    are_finite,
    erring_dtype,
    error_dtype,
    error_of,
    rounded,
    share,
    tipped,
    value_of,
    with_error,
)
from fusion_ir.accuracy.error_patterns import ulp_of_one
from fusion_ir.arithmetic.cache_blocks import blocks
from fusion_ir.arithmetic.conversions import dtype_of, round_to, ulp, widen
from fusion_ir.arithmetic.threads import side_by_side
from fusion_ir.core.node import Node
from fusion_ir.dtype import compute_dtype
from fusion_ir.ops import OPS

# Where ops have values: intervals end there.
DOMAINS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("sqrt", "rsqrt", "log", "log2", "log10"), (0.0, np.inf)),
    **dict.fromkeys(("asin", "acos", "atanh"), (-1.0, 1.0)),
    "log1p": (-1.0, np.inf),
    "acosh": (1.0, np.inf),
}
# Computed at a time: what lies between operands and result stays in the second-level cache; of less, threads that share
# an interpreter wait for each other.
BLOCK_ELEMENTS = 1 << 16


def pointwise_bound(
    node: Node, operands: Sequence[np.ndarray], errs: bool, signless: Collection[int] = ()
) -> np.ndarray:
    """The node's value with errors. errs: on its own, too. signless: operands whose zeros may have either sign."""

    def block(parts: Sequence[np.ndarray], into: np.ndarray) -> None:
        _block(node, parts, errs, signless, into)

    return _in_blocks(node, operands, block)


def normalized_bound(node: Node, x: np.ndarray, total: np.ndarray) -> np.ndarray:
    """x over the sum S of its row, with errors: p = x / S is off by (1 - p) e / S for an error e of x, and by p e / S
    for an error e of the rest of the row."""
    are_shares = bool((value_of(x) >= 0).all())

    def block(parts: Sequence[np.ndarray], into: np.ndarray) -> None:
        _normalized(node, parts[0], parts[1], are_shares, into)

    return _in_blocks(node, (x, total), block)


def _in_blocks(
    node: Node, operands: Sequence[np.ndarray], function: Callable[[Sequence[np.ndarray], np.ndarray], None]
) -> np.ndarray:
    """The node's value with errors; `function` computes one block of it from the operands' blocks and writes it to its
    second argument. Axes along which all operands repeat are computed once."""
    repeats = [n > 1 and all(x.strides[axis] == 0 for x in operands) for axis, n in enumerate(node.sizes)]
    once = tuple(slice(1) if r else slice(None) for r in repeats)
    small = [x[once] for x in operands]
    result = np.empty(small[0].shape, erring_dtype(node.dtype))

    def fill(large: tuple[slice | int, ...]) -> None:
        into, parts = result[large], [x[large] for x in small]
        for block in blocks(into.shape, BLOCK_ELEMENTS):
            function([np.asarray(x[block]) for x in parts], into[block])

    side_by_side(fill, blocks(result.shape))
    return np.broadcast_to(result, node.sizes)


def _block(node: Node, operands: Sequence[np.ndarray], errs: bool, signless: Collection[int], into: np.ndarray) -> None:
    """Computes one block of the node's value with errors, from blocks of its operands, and writes it to `into`."""
    wide, reference = compute_dtype(node.dtype), OPS[node.op].reference

    def compute(arrays: Sequence[np.ndarray]) -> np.ndarray:
        return round_to(np.asarray(reference(node, *arrays)), wide)

    values = [widen(np.asarray(value_of(x), order="C")) for x in operands]
    middle = compute(values)
    value = round_to(middle, node.dtype)
    erring = [None if e is None or not e.bound.max(initial=0) else e for e in map(error_of, operands)]
    ends: list[tuple[np.ndarray, ...]] = [
        (x,) if e is None else ends_of(x, e.bound, DOMAINS.get(node.op)) for x, e in zip(values, erring, strict=True)
    ]
    for k in OPS[node.op].zero_signs:
        ends[k], erring[k] = _with_both_zeros(values[k], ends[k], erring[k], k in signless)
    found = [e for e in erring if e is not None]
    ulps = OPS[node.op].ulps if errs else None
    if not found:
        _, own = _at_corners(node, value, [middle], ulps)
        with_error(node, value, _with_spread(node, value, own, own * own.dtype.type(EVEN)), into)
        return
    inherited, own = _at_corners(node, value, map(compute, product(*ends)), ulps)
    _beyond_corners(node, values, [inherited.dtype.type(0) if e is None else e.bound for e in erring], inherited)
    if len(found) == 2:  # by what each of them does
        first = next(k for k, e in enumerate(erring) if e is not None)
        one = ([end if k == first else x for k, x in enumerate(values)] for end in ends[first])
        part = _mixed(_at_corners(node, value, map(compute, one), None)[0], inherited, *found)
    else:
        part = reduce(np.maximum, [share(e) for e in found])
    bound, spread = inherited, inherited * part
    if errs:
        bound = np.maximum(inherited, own)
        spread = spread + np.maximum(own - inherited, 0) * own.dtype.type(EVEN)
    with_error(node, value, _with_spread(node, value, bound, spread), into)


def _with_both_zeros(
    x: np.ndarray, ends: tuple[np.ndarray, ...], error: Error | None, signless: bool
) -> tuple[tuple[np.ndarray, ...], Error | None]:
    """The ends of an operand's intervals, with -0.0 and 0.0 added where an interval contains zero, since the op jumps
    there; and the operand's error, None where it has none. signless: its zeros may have either sign."""
    if x.dtype.kind != "f" or (error is None and not signless):
        return ends, error
    low, high = ends[0], ends[-1]
    zeros = (low <= 0) & (high >= 0)
    if not signless and error is not None:
        zeros &= error.bound > 0
    if not zeros.any():
        return ends, error
    none = np.zeros(x.shape, x.dtype)
    between = tuple(np.where(zeros, x.dtype.type(zero), end) for zero, end in ((-0.0, low), (0.0, high)))
    return (low, *between, high), error or Error(none, none)


def _with_spread(node: Node, value: np.ndarray, bound: np.ndarray, spread: np.ndarray) -> Error:
    """The error of `value` with this bound and spread; the spread is infinite, too, where the bound is."""
    if not are_finite(bound, spread):
        spread = np.where(np.isfinite(bound), spread, bound)
    return Error(bound, tipped(node, value, bound, spread.astype(bound.dtype, copy=False)))


def _at_corners(
    node: Node, value: np.ndarray, corners: Iterable[np.ndarray], ulps: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """The distance from an op's value to its farthest corner, and that distance where the op errs by `ulps` there, too
    (None: zeros).

    Rounding is monotone: among finite corners, the lowest and the highest are the farthest.
    """
    lows = highs = list(corners)
    if len(lows) > 1:
        low, high = reduce(np.minimum, lows), reduce(np.maximum, lows)
        if are_finite(low, high):
            lows, highs = [low], [high]
    inherited = np.zeros(value.shape, error_dtype(node.dtype))
    own = np.zeros_like(inherited)

    def raise_(least: np.ndarray, ends: Iterable[np.ndarray]) -> None:
        for end in ends:
            np.maximum(least, difference(round_to(end, node.dtype), value), out=least)

    raise_(inherited, lows if lows is highs else (*lows, *highs))
    if ulps is not None:
        raise_(own, (x - _ulps_of(x, ulps) for x in lows))
        raise_(own, (x + _ulps_of(x, ulps) for x in highs))
    return inherited, own


def _ulps_of(x: np.ndarray, ulps: float) -> np.ndarray:
    """The distance that a kernel allowed `ulps` may have from a value `x` that the reference rounded: `ulps` + 0.5 ulps
    of x; 0 for zeros and infinities."""
    off: np.ndarray = np.maximum(np.abs(x), np.finfo(x.dtype).smallest_normal)
    off *= x.dtype.type((ulps + 0.5) * ulp_of_one(x.dtype))
    if not are_finite(x):
        return np.where((x == 0) | ~np.isfinite(x), np.zeros_like(off), off)
    off *= x != 0
    return off


def _mixed(alone: np.ndarray, inherited: np.ndarray, first: Error, second: Error) -> np.ndarray:
    """The ratio spread / bound of the bound `inherited` from two operands: the mean of their ratios, weighted by the
    part of the bound that each makes. alone: the bound from the first operand alone."""
    if are_finite(inherited):
        part = np.minimum(alone / np.maximum(inherited, np.finfo(inherited.dtype).smallest_subnormal), 1)
    else:
        known = (inherited > alone) & np.isfinite(inherited)
        part = np.divide(alone, inherited, out=np.ones_like(alone), where=known)
    return part * share(first) + (1 - part) * share(second)


def ends_of(x: np.ndarray, error: np.ndarray, domain: tuple[float, float] | None) -> tuple[np.ndarray, np.ndarray]:
    """The ends of x +- error, in x's dtype."""
    if x.dtype == np.bool_:
        return x & (error == 0), x | (error > 0)
    if x.dtype.kind != "f":
        info = np.iinfo(x.dtype)
        low, high = (np.clip(x + sign * error, float(info.min), float(info.max)) for sign in (-1, 1))
        return (*(np.where(error == 0, x, round_to(end, dtype_of(x))) for end in (low, high)),)  # type: ignore[return-value]
    off, infinity = error.astype(x.dtype), x.dtype.type(np.inf)
    low, high = x - off, x + off
    if not are_finite(off):
        low, high = np.where(np.isinf(off), -infinity, low), np.where(np.isinf(off), infinity, high)
    if domain is not None:
        inside = (x >= domain[0]) & (x <= domain[1]) & (off < infinity)  # beyond it anything may be, NaN, too
        low = np.where(inside, np.maximum(low, x.dtype.type(domain[0])), low)
        high = np.where(inside, np.minimum(high, x.dtype.type(domain[1])), high)
    return low, high


def _beyond_corners(node: Node, values: Sequence[np.ndarray], errors: Sequence[np.ndarray], error: np.ndarray) -> None:
    """Raises `error` where an op reaches values between the corners that are farther off than those at the corners.

    Even functions that grow with |x| have their minimum at 0, no farther off than their value at the far end.
    """
    x, e = values[0], errors[0]
    match node.op:
        case "sin" | "cos":
            error[e > 1] = 2
        case "tan":
            error[np.floor((x - e) / pi + 0.5) != np.floor((x + e) / pi + 0.5)] = np.inf
        case "reciprocal":
            error[(e > 0) & (np.abs(x) <= e)] = np.inf
        case "div" | "floordiv" if x.dtype.kind == "f":
            error[(errors[1] > 0) & (np.abs(values[1]) <= errors[1])] = np.inf
        case "fmod" | "remainder" if x.dtype.kind == "f":
            turns = [np.floor(a / b) for a in (x - e, x + e) for b in (values[1] - errors[1], values[1] + errors[1])]
            turned = np.max(turns, axis=0) != np.min(turns, axis=0)
            np.maximum(error, np.where(turned, np.abs(values[1]) + errors[1], 0), out=error)
        case "eq" | "ne":
            reach = np.add(*errors)
            apart = np.abs(np.subtract(*(v.astype(reach.dtype) for v in values)))
            error[(reach > 0) & (apart <= reach)] = 1
        case "cast" if node.dtype.kind == "bool":
            error[(e > 0) & (np.abs(x.astype(e.dtype)) <= e)] = 1
        case _:
            pass


def _normalized(node: Node, x: np.ndarray, total: np.ndarray, are_shares: bool, into: np.ndarray) -> None:
    """Computes one block of `normalized_bound`. are_shares: x is not negative, so that p lies between 0 and 1 whatever
    the errors are."""
    size = widen(np.asarray(value_of(total), order="C"))
    p = round_to(
        OPS[node.op].reference(node, widen(np.asarray(value_of(x), order="C")), size), compute_dtype(node.dtype)
    )
    zeros = np.zeros(p.shape, p.dtype)
    error, whole = (error_of(y) or Error(zeros, zeros) for y in (x, total))
    magnitude, ulp_of_p = np.abs(size), ulp(p)
    both = np.maximum(whole.bound - error.bound, 0), whole.bound + error.bound  # whose squares may underflow
    rest = np.sqrt(both[0]) * np.sqrt(both[1]) + ulp(size)
    left, most = np.abs(1 - p), np.abs(p) * rest
    bound = (left * error.bound + most) / magnitude + ulp_of_p
    spread = (left * error.spread + most * share(whole)) / magnitude + ulp_of_p * p.dtype.type(EVEN)
    if are_shares:
        bound = np.minimum(bound, np.maximum(p, left) + ulp_of_p)
    elif (may_vanish := rest >= magnitude).any():
        bound = np.where(may_vanish, np.inf, bound)
    spread = np.minimum(spread, bound)
    known = error.bound + whole.bound > 0
    if not known.all():
        bound, spread = np.where(known, bound, 0), np.where(known, spread, 0)
    rounded(node, p, Error(bound, spread), into)
