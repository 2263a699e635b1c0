"""Beginnings of keys: what is said where one stands for several, and how long those are that people see."""

from collections.abc import Sequence
from itertools import pairwise

KEY_DIGITS = 12  # of a key, as people see it, where that is enough to tell it from others
CANDIDATES = 8  # that are listed


def told_apart(keys: Sequence[str]) -> int:
    """How many first digits of these keys are shown: enough to tell each from all others, and not fewer than usual."""
    ordered = sorted(set(keys))
    common = (_common(a, b) for a, b in pairwise(ordered))
    return max(KEY_DIGITS, 1 + max(common, default=0))


def several(prefix: str, found: Sequence[str], what: str) -> str:
    """That more than one of them begins with it, and which: "3f2a: 2 plans begin with it: 3f2a..., 3f2a...; give more
    digits". found: all of them, or more than CANDIDATES."""
    digits = told_apart(found)
    listed = ", ".join(key[:digits] for key in found[:CANDIDATES])
    number = f"more than {CANDIDATES}" if len(found) > CANDIDATES else str(len(found))
    more = ", ..." * (len(found) > CANDIDATES)
    return f"{prefix}: {number} {what} begin with it: {listed}{more}; give more digits"


def _common(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
