"""The signs of errors in a perturbed run (`fusion_ir.accuracy.perturb`), and how its roundings tip.

`patterns` says which signs to try. Random signs per element, and their mirror image: a rounding or a comparison that
some error could tip is tipped by one of the two. Then signs per node, all elements alike: all plus, and so that any
two nodes differ in one of the patterns (the binary digits of their numbers): errors of two nodes that cancel in one
pattern add up in another. Each of these has its mirror image, too: an ulp more and an ulp less are rounded apart, and
a value near a tie is tipped by one of the two. They also show what a bias does to a sum. Where roundings tip, random
signs again make up the number of runs: only some of these values tip together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

SAFETY = 4.0
TIPPING = 512.0  # ulps of one in the wider dtype: a 128th of a bf16's ulp, a 16th of an f16's

_SIGNS = np.random.default_rng(0).integers(0, 2, (1 << 18) + 29).astype(np.float32) * 2 - 1
_SHARES = np.random.default_rng(1).uniform(-1, 1, _SIGNS.size).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Pattern:
    """Signs of the errors, times `direction`: random per element, or per node, by a digit of its number.

    digit: None for random signs; -1 for all plus; else minus where that binary digit of the inexact node's number is 1.
    draw: which random numbers are taken; a pattern and its mirror image have one draw.
    """

    direction: int = 1
    digit: int | None = None
    draw: int = 0


def patterns(inexact_nodes: int, runs: int, tipping: bool = False) -> list[Pattern]:
    """At most `runs` patterns for a graph with `inexact_nodes` such nodes, the most telling first; exactly `runs` where
    roundings are `tipping`."""
    digits: list[int | None] = [None]
    if inexact_nodes > 1:
        digits += [-1, *range((inexact_nodes - 1).bit_length())]
    if tipping:
        digits += [None] * runs
    return [Pattern(direction, digit, draw) for draw, digit in enumerate(digits) for direction in (1, -1)][:runs]


def more_patterns(runs: int, known: Sequence[Pattern]) -> list[Pattern]:
    """`runs` patterns of random signs, from draws that none of the `known` patterns uses."""
    first = 1 + max((pattern.draw for pattern in known), default=-1)
    return [Pattern(direction, None, first + draw) for draw in range(-(-runs // 2)) for direction in (1, -1)][:runs]


@dataclass(frozen=True, slots=True)
class Tips:
    """Random factors, within `TIPPING` ulps of one, for the values that one node rounds in one piece, so that values
    near a tie tip."""

    pattern: Pattern
    rounding: int
    piece: int

    def moved(self, value: np.ndarray, first: int = 0) -> np.ndarray:
        """`value` times the factors. first: the index in the piece at which `value` begins."""
        start = first + self.rounding * 104_729 + (self.piece + 1) * 15_485_863 + (self.pattern.draw + 1) * 32_452_843
        return value * _drawn(_tips(value.dtype, self.pattern.direction), start, value)


@cache
def _tips(dtype: np.dtype, direction: int) -> np.ndarray:
    return 1 + _SHARES.astype(dtype) * dtype.type(TIPPING * ulp_of_one(dtype) * direction)


def _drawn(table: np.ndarray, start: int, value: np.ndarray) -> np.ndarray:
    """Entries of a table of random numbers from `start` on, around its end, in the shape of `value`."""
    start %= table.size
    drawn = table[start : start + value.size]
    if drawn.size < value.size <= table.size:
        drawn = np.concatenate([drawn, table[: value.size - drawn.size]])
    elif drawn.size < value.size:
        drawn = np.resize(np.roll(table, -start), value.size)
    return drawn.reshape(value.shape)


@dataclass(frozen=True, slots=True)
class Moves:
    """Random shares of the largest distance by which a moved rounding may move the values of one node in one piece."""

    pattern: Pattern
    rounding: int
    piece: int

    def like(self, value: np.ndarray) -> np.ndarray:
        """Numbers between -1 and 1, in the shape of `value`, which is all of the piece."""
        start = self.rounding * 104_729 + (self.piece + 1) * 15_485_863 + (self.pattern.draw + 1) * 67_867_967
        return _drawn(_SHARES, start, value) * value.dtype.type(self.pattern.direction)


@dataclass(frozen=True, slots=True)
class Signs:
    """SAFETY times the signs of the errors of one node in one piece, and how its rounding tips."""

    pattern: Pattern
    number: int
    piece: int
    tips: Tips | None

    def like(self, value: np.ndarray, first: int = 0) -> np.ndarray:
        """Factors +-`SAFETY` that broadcast against `value`, which begins at element `first` of the piece."""
        if self.pattern.digit is not None:
            minus = self.pattern.digit >= 0 and self.number >> self.pattern.digit & 1
            return np.asarray(value.dtype.type(SAFETY * self.pattern.direction * (-1 if minus else 1)))
        start = first + self.number * 104_729 + (self.piece + 1) * 15_485_863 + self.pattern.draw * 49_979_687
        return _drawn(_SIGNS, start, value) * value.dtype.type(SAFETY * self.pattern.direction)


def ulp_of_one(dtype: np.dtype) -> float:
    """The distance from one to the next number of a float dtype."""
    return float(np.finfo(dtype).eps)
