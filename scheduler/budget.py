"""The budget of a search, and the reports of its progress: all that a caller of a search needs."""

from dataclasses import dataclass
from typing import Any, Protocol

from fusion_ir.records import NUMERICS, Plan
from scheduler.sampler_names import SAMPLERS

INTERRUPTED = "the search was interrupted"  # a reason of its plan
MOST_SECONDS = 86_400.0  # of one search
MOST_MEMORY = 2**63 - 1  # bytes: what a database keeps


class RequestError(ValueError):
    """A request that no search can meet; the message gives the expected and the actual value."""


@dataclass(frozen=True)
class Budget:
    """Limits of a search and of its plan. Raises RequestError.

    seconds: of wall clock, up to a day; 0: nothing is timed and the plan is a prediction. seed: of test data and
    rounds. memory_bytes: of temporaries that the plan may need (`Plan.temporary_bytes`; inputs and outputs are the
    caller's, whatever the plan), None for any number. sampler: that chooses schedules, a name in `SAMPLERS` or a dotted
    path.
    """

    seconds: float
    seed: int = 0
    memory_bytes: int | None = None
    sampler: str = "fuseplan"

    def __post_init__(self) -> None:
        seconds: Any = self.seconds  # of callers without types
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not 0 <= seconds <= MOST_SECONDS:  # NaN fails too
            expected = f"a number from 0 (nothing is timed) to {MOST_SECONDS:g}"
            raise RequestError(f"seconds: expected {expected}, got {seconds!r}")
        seed: Any = self.seed
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
            raise RequestError(f"seed: expected a whole number from 0 to 2^63 - 1, got {seed!r}")
        if self.memory_bytes is not None:
            check_memory(self.memory_bytes)
        check_sampler(self.sampler)


def check_memory(memory_bytes: Any) -> None:
    """Raises RequestError for what is no limit of memory."""
    is_count = isinstance(memory_bytes, int) and not isinstance(memory_bytes, bool)
    if not is_count or not 1 <= memory_bytes <= MOST_MEMORY:
        raise RequestError(f"memory_bytes: expected a whole number from 1 to 2^63 - 1, got {memory_bytes!r}")


def check_sampler(sampler: Any) -> None:
    """Raises RequestError for what is neither a sampler's name nor a dotted path."""
    parts = sampler.replace(":", ".").split(".") if isinstance(sampler, str) else []
    if sampler not in SAMPLERS and not (len(parts) > 1 and all(part.isidentifier() for part in parts)):
        expected = f"one of {', '.join(SAMPLERS)}, or a dotted path"
        raise RequestError(f"sampler: expected {expected}, got {sampler!r}")


def check_numerics(numerics: Any) -> None:
    """Raises RequestError for what is no class of rewrites."""
    if numerics not in NUMERICS:
        raise RequestError(f"numerics: expected one of {', '.join(NUMERICS)}, got {numerics!r}")


@dataclass(frozen=True)
class Event:
    """How a search is getting on. phase: "candidates", "segments", "plans" or "done". measured: kernels so far.
    best_us: sum of the segments' times of the best plan measured whole."""

    phase: str
    measured: int
    best_us: float | None
    seconds: float


class Progress(Protocol):
    """Told now and then. May raise KeyboardInterrupt, which ends the search with the best so far."""

    def __call__(self, event: Event) -> None: ...


def was_interrupted(plan: Plan) -> bool:
    """Whether somebody ended the search for it."""
    return any(reason.text == INTERRUPTED for reason in plan.reasons)
