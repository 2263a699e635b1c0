"""Several graphs for `fuseplan tune`: one after another, a line for each as it ends, then what they had in common."""

import json as json_module
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from codegen.devices.detection import DeviceError
from codegen.sandbox.object_cache import CacheError
from codegen.toolchain.compiler import CompilerMissing
from fusion_ir.core.named import NamedGraph
from scheduler.no_plan import NoPlan
from service.cli.answer import Answer, answer_json
from service.cli.errors import FAILED, CommandError
from service.cli.graph_argument import read_graph
from service.cli.interrupts import Interrupts
from service.cli.terminal import out, print_line, say
from service.planning.planner import PlanningError
from service.wording.formatting import count, duration, expected, ratio, times
from service.wording.states import shown_state
from tuning_db.errors import DatabaseError

INTERRUPTED = 130
NAME_WIDTH = 60  # a longer name pushes its columns to the right, at a terminal onto a line of their own
COLUMNS = "{:<9}  {:<5}  {:>8}  {:>8}  {:>7}"
COLUMNS_WIDTH = 47  # with the two blanks before them

# What fails for one graph would fail for every other: these end the command.
EVERYWHERE = (DatabaseError, CacheError, DeviceError, CompilerMissing)

Ask = Callable[[NamedGraph], Answer]
SegmentsOf = Callable[[str], Sequence[str]]  # by graph key


@dataclass
class Tally:
    """How the graphs ended. `graphs`: keys of those that have plans."""

    names: Sequence[str]
    started: float = field(default_factory=time.monotonic)
    caches: list[str] = field(default_factory=list[str])
    failed: int = 0
    graphs: set[str] = field(default_factory=set[str])

    @property
    def unfinished(self) -> int:
        return len(self.names) - len(self.caches) - self.failed

    def summary(self, segments_of: SegmentsOf | None) -> Mapping[str, Any]:
        """In numbers. segments: those of every graph, distinct ones, and the difference; None where nobody knows."""
        segments: Mapping[str, int] | None = None
        if segments_of is not None:
            lists = [segments_of(key) for key in self.graphs]
            used, distinct = sum(map(len, lists)), len({key for keys in lists for key in keys})
            segments = {"used": used, "distinct": distinct, "shared": used - distinct}
        return {
            "graphs": len(self.names),
            "hits": self.caches.count("hit"),
            "misses": self.caches.count("miss"),
            "failed": self.failed,
            "not_done": self.unfinished,
            "seconds": round(time.monotonic() - self.started, 3),
            "segments": segments,
        }


def tune_many(
    names: Sequence[str],
    format_: str | None,
    ask: Ask,
    segments_of: SegmentsOf | None,
    interrupts: Interrupts,
    *,
    json: bool,
) -> None:
    """Asks for the plan of every graph. Raises CommandError, once all else is done, where one failed.

    Ctrl-C ends the search that runs, whose best plan so far is kept, and leaves out the graphs that were to follow.
    """
    tally = Tally(names)
    console = out()
    room = max(console.width - COLUMNS_WIDTH, len("graph")) if console.is_terminal else None
    width = min(room or NAME_WIDTH, NAME_WIDTH, max(map(len, (*names, "graph"))))
    if not json:
        print_line(f"{'graph':<{width}}  {COLUMNS.format('state', 'cache', 'time', 'speed-up', 'gap')}")
    for name in names:
        try:
            answer = ask(read_graph(name, format_))
        except KeyboardInterrupt:
            break
        except EVERYWHERE:
            raise
        except Exception as error:
            _failed(name, error, tally, json)
        else:
            tally.caches.append(answer.cache)
            tally.graphs.add(answer.plan.graph_key)
            print_line(
                _json_line(name, answer) if json else _line(name, width, _columns(answer), is_narrow=room is not None)
            )
        if interrupts.came:
            break
    summary = tally.summary(segments_of)
    print_line(json_module.dumps({"summary": summary}) if json else _sentence(summary))
    if interrupts.came:
        raise CommandError("interrupted", INTERRUPTED)
    if tally.failed:
        raise CommandError(f"{count(tally.failed, 'graph')} of {len(names)} failed", FAILED)


def _failed(name: str, error: Exception, tally: Tally, json: bool) -> None:
    tally.failed += 1
    reason = str(error)
    if not isinstance(error, CommandError | PlanningError | NoPlan):  # a fault of ours: the others go on all the same
        reason = f"{type(error).__name__}: {error}"
        say("".join(traceback.format_exception(error)).rstrip())
    if json:
        print_line(json_module.dumps({"graph": name, "error": reason}))
    say(f"failed: {reason if name in reason else f'{name}: {reason}'}")


def _line(name: str, width: int, columns: str, *, is_narrow: bool) -> str:
    """Name and columns; at a terminal below each other where the name takes more than the column of names."""
    if is_narrow and len(name) > width:
        return f"{name}\n{'':<{width}}  {columns}"
    return f"{name:<{width}}  {columns}"


def _json_line(name: str, answer: Answer) -> str:
    fields = answer_json(answer)
    return json_module.dumps({"graph": name, **fields}, allow_nan=False)


def _columns(answer: Answer) -> str:
    plan = answer.plan
    speed_up = times(ratio(plan.unfused_us, plan.time_us))
    state = shown_state(answer.state, plan.device.target, plan.time_us, plan.spread)
    if state in ("measured", "noisy") and answer.cut_short:
        state = "cut short"
    time = expected(plan.time_us, plan.predicted_us)
    return COLUMNS.format(state, answer.cache, time, speed_up, times(plan.search_gap))


def _sentence(summary: Mapping[str, Any]) -> str:
    named = {"hits": "found", "misses": "tuned", "failed": "failed", "not_done": "not done"}
    parts = [f"{summary[what]} {word}" for what, word in named.items() if summary[what]]
    lines = [f"{count(summary['graphs'], 'graph')}: {', '.join(parts)}, in {duration(summary['seconds'] * 1e6)}"]
    segments = summary["segments"]
    if segments is not None:
        used = f"{count(segments['used'], 'segment')} tried, {segments['distinct']} of them distinct"
        lines.append(f"{used}: {segments['shared']} found in an earlier graph")
    return "\n".join(lines)
