"""The protocol of children that check and time programs, whatever device they run them on.

`bench`: {"checked": i, "status", "detail", "max_rel_error"} is sent for each program once it was looked at; then those
that passed are raced, and those whose timed runs were wrong get a second such message. The result holds a timing for
each of the others ("samples_us", "note", "warm_us", "sets", "prologue_us"), and the surroundings of the race.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from codegen.child.case import Verdict, verdict_message
from codegen.child.serve import Channel
from codegen.timing.protocol import Timing
from fusion_ir.accuracy.tolerance import Order
from fusion_ir.status import Status

C = TypeVar("C")


@dataclass(frozen=True)
class ProgramText:
    """A program of a message: {"steps": [{"args", ...}], "once", "buffers": [bytes], "kept", "aliases", "order"}. Its
    steps work on one table of inputs, outputs and temporaries. steps: with the entries of the table that each takes.
    once: number of first steps that are a prologue, which writes the temporaries `kept`. aliases: entries of the table
    that outputs are, by the output's number, where they are not their own. order: see `judge`."""

    steps: tuple[tuple[dict[str, Any], list[int]], ...]
    once: int
    buffers: tuple[int, ...]
    kept: tuple[int, ...]
    aliases: dict[int, int]
    order: Order


def read_program(text: Mapping[str, Any], inputs: int, outputs: int) -> ProgramText:
    """Reads a program that has so many inputs and outputs."""
    first = {"in": 0, "out": inputs, "tmp": inputs + outputs}
    steps = tuple((step, [first[place] + index for place, index in step["args"]]) for step in text["steps"])
    aliases = {i: first[place] + index for i, (place, index) in text["aliases"]}
    buffers, kept = tuple(text["buffers"]), tuple(text["kept"])
    return ProgramText(steps, text["once"], buffers, kept, aliases, text.get("order", "own"))


class Unloadable(Exception):
    """A program that cannot be loaded here."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class BenchDevice(Protocol[C]):
    """A device for one message, with the tensors of its case in memory. C: a program that was loaded."""

    def load(self, text: Mapping[str, Any]) -> C:
        """Raises Unloadable."""
        ...

    def check(self, index: int, candidate: C) -> Verdict:
        """Runs program `index` on the case's tensors, and compares its outputs."""
        ...

    def time(self, candidates: dict[int, C]) -> dict[str, Any]:
        """The result of `bench` for the programs that passed, perhaps none."""
        ...


def bench(device: BenchDevice[C], message: Mapping[str, Any], channel: Channel) -> dict[str, Any]:
    """Checks and times the message's `programs`. `passed`: programs that an earlier child checked."""
    candidates: dict[int, C] = {}
    for i, text in enumerate(message["programs"]):
        try:
            candidates[i] = device.load(text)
        except Unloadable as e:
            channel.send({"checked": i, "status": e.status.value, "detail": e.detail, "max_rel_error": None})
            continue
        if i in message["passed"]:
            continue
        verdict = device.check(i, candidates[i])
        if verdict.problem:
            del candidates[i]
        channel.send(verdict_message(i, verdict))
    return device.time(candidates)


def race_until_right(
    programs: Sequence[int],
    race: Callable[[list[int]], list[Timing]],
    review: Callable[[list[int]], dict[int, Verdict]],
    channel: Channel,
) -> dict[int, Timing]:
    """A timing for each program whose timed runs gave right results. review: verdicts on those finalists of a race
    whose runs did not. They are sent to the parent and the others race again, since a wrong one may have screened them
    out."""
    order: list[int] = list(programs)
    while order:
        timings: dict[int, Timing] = dict(zip(order, race(order), strict=True))
        wrong = review([i for i, timing in timings.items() if timing.was_finalist])
        for i, verdict in wrong.items():
            channel.send(verdict_message(i, verdict))
        if not wrong:
            return timings
        order = [i for i in timings if i not in wrong]
    return {}
