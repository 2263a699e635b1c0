"""A guard around guesses: a fault in one costs the guess, never the search that asked for it."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")
LOG = logging.getLogger(__name__)


@dataclass
class GuardedPredictions:
    """faults: by who guessed, the first fault of each."""

    faults: dict[str, str] = field(default_factory=dict[str, str])

    def or_else(self, instead: T, who: str, guess: Callable[[], T]) -> T:
        """The result of `guess`; `instead` where it raises anything, or returns a float that is not finite."""
        try:
            found = guess()
        except Exception as e:  # whatever it is: guesses order work, and any order gives a plan
            self._note(who, f"{type(e).__name__}: {e}", e)
            return instead
        if isinstance(found, float) and not math.isfinite(found):
            self._note(who, f"gave {found}", None)
            return instead
        return found

    def _note(self, who: str, text: str, error: Exception | None) -> None:
        if who not in self.faults:
            self.faults[who] = text
            LOG.error("%s failed, and is done without: %s", who, text, exc_info=error)
