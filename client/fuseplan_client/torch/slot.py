"""A group of ops for one set of sizes: what it was replaced by runs until a plan has shown on live inputs that it
agrees and is faster."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal, Protocol

import torch

from fuseplan_client.cpu.executor import StackError
from fuseplan_client.cuda.driver import PassingError
from fuseplan_client.cuda.program import CapturedError
from fuseplan_client.torch.agreement import disagreement, is_beyond_numbers
from fuseplan_client.torch.devices import CPU, GroupDevice
from fuseplan_client.torch.plan_call import Call, HalfDone, Unfit
from fuseplan_client.torch.updates import Update, apart

log = logging.getLogger("fuseplan")

TIMED_CALLS = 7  # of either side, in turns
WORTH = 0.98  # of the median of what ran before, which a plan may take at most, and its fastest call at most as long
MOST_UNFIT = 20  # calls that a plan did not fit, after which it goes unless most calls do fit
# Faults of a call, or of its time; not of the plan.
UNFIT = (Unfit, StackError, CapturedError, PassingError, torch.OutOfMemoryError)
State = Literal["waiting", "planned", "refused"]
Refusal = Literal["wrong", "slower", "unusable", "unfit"]
Progress = Literal["asking", "judging", "ready", "useless"]


class OfParts(Protocol):
    """Several plans with PyTorch's ops between them, in the place of one (`parts.Parts`). left: a name for what these
    do."""

    @property
    def left(self) -> str: ...

    @property
    def slots(self) -> "Sequence[Slot]":
        """The slots of all its groups."""
        ...

    def progress(self) -> Progress:
        """asking: for plans that are not all there, or nothing was asked yet; judging: on calls; ready: every plan is
        used or refused; useless: none is used."""
        ...


@dataclass(eq=False)
class Offered:
    """A plan's function, and what is known of the plan. kernels: launches of it. parts: plans of its own, where it is
    no single one; these have to be judged before it is. arrived: when it was there, by `time.monotonic`."""

    call: Call
    key: str = ""
    kernels: int | None = None
    parts: OfParts | None = None
    arrived: float = field(default_factory=time.monotonic)
    began: bool = False
    is_checked: bool = False
    unfit: int = 0
    samples: dict[bool, list[tuple[Any, Any]]] = field(default_factory=lambda: {True: [], False: []})

    @property
    def progress(self) -> Progress:
        """How far its own plans are."""
        return "ready" if self.parts is None else self.parts.progress()

    @property
    def there(self) -> float:
        """When it was there, with those of its own plans that are used."""
        inside = [plan.there for slot in self.parts.slots for plan in slot.in_use] if self.parts is not None else []
        return max([self.arrived, *inside])


@dataclass(frozen=True)
class Verdict:
    """Medians by which a plan was taken, or not: its own, and that of what ran before. arrived: see `Offered.there`."""

    arrived: float
    plan_us: float
    replaced_us: float
    is_taken: bool


# Told of a plan that was refused: the plan, why, in which words, and both times in microseconds where it was slower.
Refused = Callable[[Offered, Refusal, str, float | None, float | None], None]


@dataclass
class Slot:
    """Calls go to `run`. replaced: the group as PyTorch's own ops. changed: told of every plan that is offered,
    accepted or refused, and of the end. updates: those that a call makes. rounded, summed: see `agreement`; empty
    where outputs are as exact as their dtypes. exactly: see `rounded_once`; None where the ops are no less exact than
    plans. device: that it runs on. reason: why there is no plan, or why the last
    one was refused. ops: of the graph that was asked about. is_open: another plan may still come. plan_us, replaced_us:
    times of the last plan that was timed, and of what ran before. verdicts: on all that were.

    With a new plan, the first call runs both sides and compares; the next ones run either in turns, and are timed; from
    then on the faster side runs. A later plan is timed against the one that runs by then; plans are judged one after
    the other. Only one thread at a time judges, the others go on as before. A plan's function may raise `Unfit` at any
    call: that call runs what the plan replaced. Where a plan fails after it may have updated inputs in place, the call
    raises HalfDone: it ran before, on copies, and so fails where the device does.
    """

    replaced: Call
    refused: Refused
    changed: Callable[[], None] = lambda: None
    updates: Sequence[Update] = ()
    rounded: Sequence[torch.dtype | None] = ()
    summed: Sequence[int] = ()
    exactly: Call | None = None
    device: GroupDevice = CPU
    reason: str = ""
    state: State = "waiting"
    plan_us: float | None = None
    replaced_us: float | None = None
    ops: int = 0
    planned_calls: int = 0
    is_open: bool = True
    run: Call = field(init=False)
    accepted: Offered | None = None
    verdicts: list[Verdict] = field(default_factory=list[Verdict])
    _judged: Offered | None = None
    _next: deque[Offered] = field(default_factory=deque)
    _judging: threading.RLock = field(default_factory=threading.RLock)
    _rounded: Sequence[torch.dtype | None] = field(init=False)
    _summed: Sequence[int] = field(init=False)

    def __post_init__(self) -> None:
        self.run = self.replaced
        updated = [self.rounded[u.output] for u in self.updates] if self.rounded else []
        self._rounded = self._with_updated(self.rounded, updated)
        self._summed = self._with_updated(self.summed, [1] * len(self.updates) if self.summed else [])

    @property
    def kernels(self) -> int | None:
        """Launches of the plan that runs, None where none does."""
        return self.accepted.kernels if self.accepted is not None else None

    @property
    def is_judging(self) -> bool:
        """Whether a plan waits for its verdict."""
        return self._judged is not None

    @property
    def wants_calls(self) -> bool:
        """Whether a plan waits for calls to judge it by, not for plans of its parts."""
        plan = self._judged
        return plan is not None and not (plan.began and plan.progress == "asking")

    @property
    def in_use(self) -> Sequence[Offered]:
        """The accepted plan, where it is of parts with the plans of these."""
        plan = self.accepted
        if plan is None:
            return ()
        return (plan, *(p for s in plan.parts.slots for p in s.in_use)) if plan.parts is not None else (plan,)

    def offer(self, plan: Offered) -> None:
        """Takes a plan, to be judged by the next calls. Any thread may call this."""
        with self._judging:
            self._next.append(plan)
            if self._judged is None:
                self._go_on()

    def withdraw(self, reason: str) -> None:
        """Notes why there is no other plan."""
        self.reason = reason

    def close(self) -> None:
        """Notes that no other plan will come."""
        self.is_open = False
        self.changed()

    def _go_on(self) -> None:
        """Judges the next plan, or runs what was found to be the fastest."""
        if self._next:
            self._judged, self.run = self._next.popleft(), self._checked
        else:
            self._judged = None
            self.run = self.replaced if self.accepted is None else self._planned
        self.changed()

    def _now(self, args: Sequence[Any]) -> Any:
        """The call as it runs without the plan that is judged."""
        return self.replaced(args) if self.accepted is None else self._planned(args)

    def _checked(self, args: Sequence[Any]) -> Any:
        """The replaced side's results, which those of the plan have to agree with."""
        plan = self._judged
        waits = plan is None or (plan.began and plan.progress == "asking") or self.device.is_capturing()
        if waits or not self._judging.acquire(blocking=False):
            return self._now(args)
        try:
            plan = self._judged
            if plan is None:
                return self._now(args)
            if plan.progress == "useless":
                self._go_on()
                return self._now(args)
            found = self._tried(plan, args)
            try:
                expected = self.replaced(args)
            except torch.OutOfMemoryError:
                if found is None:
                    raise
                found = None  # there may be room for one side
            else:
                if found is not None:
                    self._compare(plan, args, found, self._with_updated(expected, self._updated(args)))
                return expected
            self._refuse(plan, "unusable", "there is no memory for what it gives beside what ran before")
            return self.replaced(args)
        finally:
            self._judging.release()

    def _tried(self, plan: Offered, args: Sequence[Any]) -> Any:
        """The plan's results, with what it updated, of arguments that stay as they are; None where it gave none."""
        try:
            own = apart(args, self.updates)
        except torch.OutOfMemoryError as error:
            self._note_unfit(plan, error)
            return None
        try:
            found = self._given(plan, own)
        except HalfDone as error:  # to copies
            self._refuse(plan, "unusable", f"{type(error).__name__}: {error}")
            return None
        return None if found is None else self._with_updated(found, self._updated(own))

    def _compare(self, plan: Offered, args: Sequence[Any], found: Any, expected: Any) -> None:
        plan.began = True
        why: Refusal = "wrong"
        try:
            problem = disagreement(found, expected, self._rounded, self._summed)
            if problem and self.exactly is not None and not self.updates:
                problem = disagreement(found, self.exactly(args), self._rounded, self._summed)
        except Exception as error:  # of memory for the comparison, for one
            why, problem = "unusable", f"it cannot be compared: {type(error).__name__}: {error}"
        if problem and why == "wrong" and is_beyond_numbers(args, expected):
            self._note_unfit(plan, Unfit(f"NaN or infinities among what it was compared on: {problem}"))
        elif problem:
            self._refuse(plan, why, problem)
        elif plan.progress == "ready":
            plan.is_checked = True
            self.run = self._timed

    def _updated(self, args: Sequence[Any]) -> Sequence[Any]:
        return [args[u.input] for u in self.updates]

    def _with_updated(self, found: Any, updated: Sequence[Any]) -> Any:
        """Results as they are compared: those that belong elsewhere are looked at there."""
        left = {update.output for update in self.updates}
        return [*(v for i, v in enumerate(found) if i not in left), *updated] if left else found

    def _timed(self, args: Sequence[Any]) -> Any:
        """The results of either side, the one that has run less often by now."""
        if self.device.is_capturing() or not self._judging.acquire(blocking=False):
            return self._now(args)
        try:
            plan = self._judged
            if plan is None or not plan.is_checked:
                return self._now(args)
            of_plan = len(plan.samples[True]) <= len(plan.samples[False])
            start = self.device.mark()
            found = self._given(plan, args) if of_plan else self._now(args)
            if found is None:
                return self.replaced(args)
            plan.samples[of_plan].append((start, self.device.mark()))
            if min(map(len, plan.samples.values())) >= TIMED_CALLS:
                self._decide(plan)
        finally:
            self._judging.release()
        return found

    def _given(self, plan: Offered, args: Sequence[Any]) -> Any:
        """The plan's results; None where it gives none, as is noted. Raises HalfDone."""
        try:
            return plan.call(args)
        except HalfDone:
            raise
        except UNFIT as unfit:
            self._note_unfit(plan, unfit)
        except Exception as error:  # whatever a plan does, the program goes on without it
            self._refuse(plan, "unusable", f"{type(error).__name__}: {error}")
        return None

    def _decide(self, plan: Offered) -> None:
        us = self.device.between_us
        ours, before = (sorted(us(*sample) for sample in plan.samples[side]) for side in (True, False))
        self.plan_us, self.replaced_us = median(ours), median(before)
        is_taken = ours[0] <= before[0] and self.plan_us <= WORTH * self.replaced_us
        self.verdicts.append(Verdict(plan.there, self.plan_us, self.replaced_us, is_taken))
        if is_taken:
            self._accept(plan)
        else:
            at_best = self.plan_us <= WORTH * self.replaced_us  # where the medians would do
            us, before_us = (ours[0], before[0]) if at_best else (self.plan_us, self.replaced_us)
            how = " at best" if at_best else ""
            self._refuse(plan, "slower", f"{us:.0f} us{how}, what ran before {before_us:.0f} us")

    def _accept(self, plan: Offered) -> None:
        self.accepted, self.planned_calls, self.state, self.reason = plan, 0, "planned", ""
        self._go_on()

    def _planned(self, args: Sequence[Any]) -> Any:
        plan = self.accepted
        if plan is None:
            return self.replaced(args)
        try:
            found = plan.call(args)
            self.planned_calls += 1
            return found
        except HalfDone:  # nobody can go on as if nothing had been
            raise
        except Exception as error:  # whatever a plan does, the program goes on without it
            if self._judging.acquire(blocking=False):  # in the child of a fork nobody may ever let go of it
                try:
                    if isinstance(error, UNFIT):
                        self._note_unfit(plan, error)
                    elif self.accepted is plan:
                        self._refuse(plan, "unusable", f"{type(error).__name__}: {error}")
                finally:
                    self._judging.release()
        return self.replaced(args)

    def _note_unfit(self, plan: Offered, unfit: Exception) -> None:
        if isinstance(unfit, CapturedError):  # as many calls may follow as the program likes
            return
        plan.unfit += 1
        if plan.unfit >= MOST_UNFIT and (self.accepted is not plan or 2 * plan.unfit > self.planned_calls):
            self._refuse(plan, "unfit", f"{plan.unfit} calls did not fit: {unfit}")

    def _refuse(self, plan: Offered, why: Refusal, detail: str) -> None:
        """Goes on without the plan: with the one before, unless it is that."""
        if self.accepted is plan:
            self.accepted = None
        self.reason = f"{why}: {detail}"
        self.state = "refused" if self.accepted is None else "planned"
        if self._judged is plan or self._judged is None:
            self._go_on()
        log.info("a plan was refused as %s: %s", why, detail)
        self.refused(plan, why, detail, self.plan_us, self.replaced_us)
