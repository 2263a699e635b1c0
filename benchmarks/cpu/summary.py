"""Figures over the outcomes of many cases, by the resource that bounds them, and the names of those that miss."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

from benchmarks.cpu.contest import Outcome

SPEED_LIMIT = 0.95  # below it, a plan is slower than PyTorch by more than noise
FLOOR_LIMIT = 1.5


@dataclass(frozen=True)
class Group:
    """Cases of one kind. geometric_mean: of the better of PyTorch's sides over the plan. slowest: the case with the
    lowest such ratio."""

    count: int
    geometric_mean: float
    slowest: str
    slowest_ratio: float


@dataclass(frozen=True)
class Summary:
    """slower: cases of any kind below `speed_limit`. near_floor: memory-bound cases within `floor_limit` of moving
    their bytes, of `floors_known`; far_from_floor: the others. near_copy: cases within it of copying as many bytes."""

    groups: dict[str, Group]
    near_floor: int
    near_copy: int
    floors_known: int
    slower: tuple[str, ...]
    far_from_floor: tuple[str, ...]
    failed: int
    speed_limit: float = SPEED_LIMIT
    floor_limit: float = FLOOR_LIMIT


def summarise(outcomes: Sequence[Outcome]) -> Summary:
    """Matrix products in f32 and in 16 bits count apart: for the latter, the machine has units that we do not use."""
    done = [o for o in outcomes if not o.problem]
    memory = [o for o in done if o.kind == "memory"]
    matmul = [o for o in done if o.kind == "matmul"]
    groups = {
        "memory-bound": _group(memory),
        "matmul, f32": _group([o for o in matmul if o.dtype == "f32"]),
        "matmul, 16 bits": _group([o for o in matmul if o.dtype != "f32"]),
    }
    far = [o for o in memory if o.over_floor.median > FLOOR_LIMIT]
    return Summary(
        groups=groups,
        near_floor=len(memory) - len(far),
        near_copy=sum(o.over_copy.median <= FLOOR_LIMIT for o in memory),
        floors_known=len(memory),
        slower=tuple(_named(o, o.speedup.median) for o in done if o.speedup.median < SPEED_LIMIT),
        far_from_floor=tuple(_named(o, o.over_floor.median) for o in far),
        failed=len(outcomes) - len(done),
    )


def _group(outcomes: Sequence[Outcome]) -> Group:
    if not outcomes:
        return Group(0, 0.0, "", 0.0)
    ratios = [o.speedup.median for o in outcomes]
    slowest = min(outcomes, key=lambda o: o.speedup.median)
    mean = exp(sum(log(r) for r in ratios) / len(ratios))
    return Group(len(ratios), mean, f"{slowest.name} {slowest.dtype}", slowest.speedup.median)


def _named(outcome: Outcome, ratio: float) -> str:
    return f"{outcome.name} {outcome.dtype} ({ratio:.2f})"
