"""A graph of Dynamo's: with plans, or as PyTorch runs it without them, whichever took less time of live calls."""

import itertools
import logging
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from torch._C._autograd import _top_saved_tensors_default_hooks as top_hooks
from torch.autograd import forward_ad
from torch.fx import GraphModule

from fuseplan_client.torch.backward import BackwardTimer, Interval
from fuseplan_client.torch.devices import CPU, GroupDevice
from fuseplan_client.torch.group import PlannedGroup
from fuseplan_client.torch.plan_call import HalfDone
from fuseplan_client.torch.slot import Offered, Slot

log = logging.getLogger("fuseplan")

TIMED_CALLS = 15  # of either side, in turns
WORTH = 0.98  # of the other side's time, which the side with plans may take at most
CLOSE = 0.1  # of the other side's time: medians this near to WORTH of it are of CLOSE_TIMES as many calls
CLOSE_TIMES = 3
FIRST_CALLS = 3  # by way of the groups, so that each is called: a backward graph is when gradients are asked for
MOST_SIZES = 8  # that are timed; calls of others run as PyTorch has them
WITHOUT_BACKWARD = 3  # times as many calls as have to be timed: by then gradients are not asked for, and forward counts


@dataclass(frozen=True)
class CompiledGraph:
    """One graph of AOTAutograd's. kind: "forward", "backward" or "inference". module: it with its groups. left: of ops
    that are no part of a group, by the node's name, why."""

    kind: str
    module: GraphModule
    left: Mapping[str, str]


@dataclass(eq=False)
class Race:
    """The two sides of a graph for one set of sizes. device: that it runs on. is_planned: plans are faster. own_us,
    planned_us: medians of the last race, None before there was one; with the backward pass where gradients were asked
    for. changes: of the plans that were looked at. is_packed: see `_packs_what_is_saved`, of the last call."""

    device: GroupDevice = CPU
    is_planned: bool = False
    own_us: float | None = None
    planned_us: float | None = None
    changes: int = -1
    first_calls: int = FIRST_CALLS
    is_packed: bool = False
    of_plans: Sequence[Offered] = ()
    _started: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})
    _forward: dict[bool, list[Sequence[Interval]]] = field(default_factory=lambda: {True: [], False: []})
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _timer: BackwardTimer = field(init=False)

    def __post_init__(self) -> None:
        self._timer = BackwardTimer(self.device)

    def restart(self) -> None:
        """Forgets the calls that were timed."""
        self._timer.drop()
        self._started, self._forward = {True: 0, False: 0}, {True: [], False: []}

    def call(self, sides: Mapping[bool, Callable[..., Any]], args: Sequence[Any]) -> Any:
        """A call of the side that has run less often, timed; of the faster one where another thread is at it."""
        if not self._lock.acquire(blocking=False):
            return sides[self.is_planned](*args)
        try:
            of_plans = self._started[True] <= self._started[False]
            self._started[of_plans] += 1
        finally:
            self._lock.release()
        start = self.device.mark()
        found = sides[of_plans](*args)
        forward = start, self.device.mark()
        self._forward[of_plans].append([forward])
        self._timer.follow(of_plans, forward, args, found)
        return found

    def samples_us(self) -> Mapping[bool, Sequence[float]] | None:
        """Times of both sides once there are enough of them: of forward and backward pass where gradients are asked
        for."""
        found, enough = self._timer.samples(), TIMED_CALLS
        if min(map(len, found.values())) < enough:
            found = self._forward
            enough *= WITHOUT_BACKWARD if self._timer.is_followed else 1
        if min(map(len, found.values())) < enough:
            return None
        us = self.device.between_us
        times = {side: [sum(us(*i) for i in sample) for sample in samples] for side, samples in found.items()}
        is_long = min(map(len, times.values())) >= CLOSE_TIMES * enough
        return times if is_long or not _is_close(median(times[True]), median(times[False])) else None

    def decide(self, samples_us: Mapping[bool, Sequence[float]]) -> None:
        """The verdict."""
        self.planned_us, self.own_us = median(samples_us[True]), median(samples_us[False])
        self.is_planned = _is_faster(self.planned_us, self.own_us)
        self.restart()


def _versions(args: Sequence[Any]) -> Sequence[int | None]:
    """How often each tensor was written; None of tensors that are not counted."""
    return [None if t.is_inference() else t._version for t in args if isinstance(t, torch.Tensor)]


def _packs_what_is_saved() -> bool:
    """Whether hooks see what is saved for the backward pass, as those of checkpoints do, which compute a forward pass
    again and have to find the same tensors."""
    return torch.is_grad_enabled() and top_hooks(True) is not None


def _is_close(planned_us: float, own_us: float) -> bool:
    """Whether a few calls do not tell which side is faster: on a busy machine medians of 15 are off by some percent."""
    return abs(planned_us - WORTH * own_us) < CLOSE * own_us


def _is_faster(planned_us: float, own_us: float) -> bool:
    return planned_us <= WORTH * own_us


@dataclass(eq=False)
class WholeGraph:
    """The function that Dynamo calls. own: the graph as PyTorch runs it, whose ops are the model's own, fewer and
    larger than AOTAutograd's. compiled: by AOTAutograd, with groups. direct: gives what may be called in its place
    where gradients are off (`fuseplan_client.torch.direct`). groups, graphs: of it, forward and backward.
    is_dynamic: its sizes are arguments. told: of a fault that cost it its groups. device: that they are computed on.

    Calls run `own`, but for those by which plans are judged: the first ones, from which groups know what to ask for;
    those that a new plan is compared and timed with; and every other one until it is known whether the graph is faster
    with the plans that were accepted. Both sides of a race do each call once, so that whatever is drawn or updated is
    as it would be. Where a checkpoint may call again, every call is by way of the groups; within a level of
    forward-mode gradients, none is."""

    own: Callable[..., Any]
    is_dynamic: bool = False
    told: Callable[[str], None] = lambda problem: None
    compiled: Callable[..., Any] | None = None
    direct: Callable[[], Callable[..., Any]] | None = None
    groups: list[PlannedGroup] = field(default_factory=list)
    graphs: list[CompiledGraph] = field(default_factory=list)
    races: dict[tuple[int, ...], Race] = field(default_factory=dict)
    changes: int = 0
    device: GroupDevice = CPU
    _only: Race | None = None
    _count: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __call__(self, *args: Any) -> Any:
        race = self._only or self._race_of(args)
        if race is None or forward_ad._current_level >= 0:  # plans do not see tangents
            return self.own(*args)
        race.is_packed = _packs_what_is_saved()
        compiled = self.compiled or self.own
        if race.is_packed:  # hooks raise what is no fault, to end a call
            return compiled(*args)
        if race.changes == self.changes:
            return compiled(*args) if race.is_planned else self.own(*args)
        return self._judging(race, args)

    def _by_groups(self, *args: Any) -> Any:
        """A call by way of the groups. Where that raises what the model by itself does not, and nothing was updated by
        then, the graph loses them: as AOTAutograd wrote it, it may ask for more of PyTorch's kernels than the model
        does."""
        compiled, before = self.compiled, _versions(args)
        if compiled is None:
            return self.own(*args)
        try:
            return compiled(*args)
        except HalfDone:
            raise
        except Exception as error:
            if _versions(args) != before or (None in before and any(group.updates for group in self.groups)):
                raise
            found = self.own(*args)
            self.compiled = None
            self.forget()
            self.told(f"a graph stays PyTorch's: {type(error).__name__}: {error}")
            log.warning("a graph stays PyTorch's: %s: %s", type(error).__name__, error)
            return found

    def changed(self) -> None:
        """Told by a slot whose plans are others than before. Any thread may call this."""
        self.changes = next(self._count)

    def forget(self) -> None:
        """Drops the groups."""
        self.groups.clear()
        self.graphs.clear()
        self.races.clear()
        self._only = None

    @contextmanager
    def by_groups(self) -> Generator[None]:
        """Within it, calls of this thread and others go by way of the groups, whatever is faster."""
        own, self.own = self.own, self.compiled or self.own
        try:
            yield
        finally:
            self.own = own

    @property
    def is_settled(self) -> bool:
        """Whether every plan is there and judged, and the sides are."""
        slots = list(self._slots())
        return (
            bool(self.races)
            and all(not slot.is_open and not slot.is_judging for slot in slots)
            and all(race.changes == self.changes or race.is_packed for race in self.races.values())
        )

    def _race_of(self, args: Sequence[Any]) -> Race | None:
        if self.compiled is None or not self.groups:
            return None
        key = tuple(a for a in args if isinstance(a, int)) if self.is_dynamic else ()
        if key not in self.races and len(self.races) >= MOST_SIZES:
            return None
        race = self.races.setdefault(key, Race(self.device))
        if not self.is_dynamic:
            self._only = race
        return race

    def _slots(self) -> Iterator[Slot]:
        for group in self.groups:
            yield from list(group.slots.values())

    def _judging(self, race: Race, args: Sequence[Any]) -> Any:
        sides = {True: self._by_groups, False: self.own}
        if self.device.is_capturing():
            race.restart()
            return sides[race.is_planned](*args)
        changes, slots = self.changes, list(self._slots())
        if race.first_calls and not (race.first_calls < FIRST_CALLS and all(g.slots for g in self.groups)):
            race.first_calls -= 1
            return self._by_groups(*args)
        race.first_calls = 0
        if any(slot.wants_calls for slot in slots):
            race.restart()
            return self._by_groups(*args)
        of_plans = tuple(plan for slot in slots for plan in slot.in_use)
        if of_plans == race.of_plans:
            race.changes = changes
            return sides[race.is_planned](*args)
        if not of_plans:
            race.is_planned, race.of_plans, race.changes = False, of_plans, changes
            return self.own(*args)
        found = race.call(sides, args)
        samples_us = race.samples_us()
        if samples_us is not None:
            race.decide(samples_us)
            race.of_plans, race.changes = of_plans, changes
        return found
