"""Tables of schedules (`benchmarks.tuner.schedule_tables`) in place of a device: a bench that looks times up."""

import csv
import statistics
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.tuner.schedule_tables import FOLDER
from codegen.families import FAMILIES
from codegen.families.past_caches import pays
from codegen.kernel import EmitError, Family, Kernel, Reject
from codegen.schedule import Choices
from codegen.timing.protocol import LEAST_PAIRS
from codegen.toolchain.compiler import Binary
from codegen.workbench.step_check import Meanings
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device, Measurement, Plan, Status
from fusion_ir.text.printing import parse_graph
from scheduler.interfaces import Failed, TimedPlan

UNIT_US = 1e6  # of times in tables: far from any bound, so that no search ends for being near it


class NotInTable(LookupError):
    """A kernel that this version makes is none of those that were timed; the message names segment and schedule."""


@dataclass(frozen=True)
class Row:
    """One schedule of a segment. training: times of rounds, relative to a fast schedule's; truth: the median of such
    times in `rounds` held-out rounds; halves: medians of the even and of the odd ones. Empty and 0 for a schedule that
    failed."""

    kernel: int
    family: str
    status: Status
    training: tuple[float, ...] = ()
    truth: float = 0.0
    halves: tuple[float, float] = (0.0, 0.0)
    rounds: int = 0


@dataclass(frozen=True)
class Table:
    """A segment with all of its schedules, by their text."""

    name: str
    graph: Graph
    rows: dict[str, Row]
    families: Mapping[str, Family] = field(compare=False)

    def regret(self, schedule: str) -> float:
        """The true time of a schedule over that of the best one, by held-out rounds.

        The best one is chosen by one half of the held-out rounds and judged by the other half, and the other way round:
        the least of many noisy medians would be below every true time. A lucky draw may so come out below 1.
        """
        row = self.rows[schedule]
        most = max(r.rounds for r in self.rows.values())
        finalists = [r for r in self.rows.values() if 2 * r.rounds > most]
        best = [min(finalists, key=lambda r, h=half: r.halves[h]) for half in (0, 1)]
        return (row.halves[1] / best[0].halves[1] + row.halves[0] / best[1].halves[0]) / 2

    def spelling(self, kernel: Kernel, on: Device) -> str:
        """The table's schedule that gives this kernel: the text of fields that make no difference may be another.
        Raises NotInTable."""
        if kernel.schedule in self.rows:
            return kernel.schedule
        family = self.families[kernel.family]
        own = (s for s, row in self.rows.items() if row.family == kernel.family)
        for schedule in own:
            if family.emit(self.graph, schedule, on).identity == kernel.identity:
                return schedule
        raise NotInTable(f"{self.name}: {kernel.schedule}")

    def kernels(self) -> list[str]:
        """A schedule of each kernel that works."""
        return list({row.kernel: schedule for schedule, row in self.rows.items() if row.training}.values())


class Emitted:
    """A family whose answers are remembered, whoever asks."""

    def __init__(self, family: Family) -> None:
        self.name, self._family = family.name, family
        self._kernels: dict[tuple[Graph, str], Kernel | EmitError] = {}
        self._choices: dict[Graph, Choices] = {}

    def accepts(self, segment: Graph, device: Device) -> Reject | None:
        return self._family.accepts(segment, device)

    def space(self, segment: Graph, device: Device) -> tuple[str, ...]:
        return self._family.space(segment, device)

    def choices(self, segment: Graph, device: Device) -> Choices:
        if segment not in self._choices:
            self._choices[segment] = self._family.choices(segment, device)
        return self._choices[segment]

    def emit(self, segment: Graph, schedule: str, device: Device) -> Kernel:
        key = segment, schedule
        if key not in self._kernels:
            try:
                self._kernels[key] = self._family.emit(segment, schedule, device)
            except EmitError as error:
                self._kernels[key] = error
        found = self._kernels[key]
        if isinstance(found, EmitError):
            raise found
        return found


def device() -> Device:
    """The device that the tables were made on."""
    return Device.model_validate_json((FOLDER / "device.json").read_text())


def tables(folder: Path = FOLDER) -> list[Table]:
    """All tables of the folder, in the order of their names, without schedules that families do not try any more: those
    that store past the caches what these can hold."""
    on = device()
    return [_read(file, on) for file in sorted(folder.glob("*.csv"))]


def _read(file: Path, on: Device) -> Table:
    graph = parse_graph(file.with_suffix(".txt").read_text()).graph
    may_stream = pays(graph, on)
    rows: dict[str, Row] = {}
    times: dict[int, Row] = {}
    with file.open(newline="") as lines:
        for line in csv.DictReader(lines):
            if not may_stream and "store=stream" in line["schedule"]:
                continue
            number, status, family = int(line["kernel"]), Status(line["status"]), line["schedule"].partition("{")[0]
            if number not in times:
                training = tuple(map(float, line["training"].split()))
                truth, even, odd = (float(line[name] or 0) for name in ("truth", "even", "odd"))
                times[number] = Row(number, family, status, training, truth, (even, odd), int(line["rounds"] or 0))
            rows[line["schedule"]] = times[number]
    families = {name: Emitted(FAMILIES[name]) for name in {r.family for r in rows.values()}}
    return Table(file.stem, graph, rows, families)


class ReplayBench:
    """`scheduler.interfaces.Bench` over a table: what it measures is the median of the training rounds, every time.
    trials: kernels asked for so far, each once."""

    def __init__(self, table: Table, device: Device) -> None:
        self.table, self.device = table, device
        self.asked: dict[int, str] = {}
        self._races = 0

    at_once = 1

    def turn(self, segment_key: str) -> AbstractContextManager[None]:
        return nullcontext()

    def expect(self, kernels: Sequence[Kernel]) -> None:
        pass

    def race_seconds(self, segment_key: str, count: int) -> float:
        return 0.0

    def first_race_seconds(self, segment: Graph, segment_keys: frozenset[str], count: int) -> float:
        return 0.0

    @property
    def trials(self) -> int:
        return len(self.asked)

    def measure(
        self, segment: Graph, segment_key: str, kernels: Sequence[Kernel], *, seed: int = 0
    ) -> list[Measurement]:
        self._races += 1
        found: list[Measurement] = []
        for kernel in kernels:
            schedule = self.table.spelling(kernel, self.device)
            row = self.table.rows[schedule]
            self.asked.setdefault(row.kernel, schedule)
            found.append(
                Measurement(
                    segment_key=segment_key,
                    device_key=self.device.class_key,
                    family=kernel.family,
                    schedule=kernel.schedule,
                    status=row.status,
                    samples_us=(UNIT_US * median_training(row),) * LEAST_PAIRS if row.training else (),
                    race=str(self._races),
                    toolchain=self.device.toolchain,
                    driver=self.device.driver,
                )
            )
        return found

    def allow(self, seconds: float) -> None:
        pass

    def idle_share(self, seconds: float) -> None:
        return None

    def cpu_share(self) -> None:
        return None

    def measure_plans(
        self, graph: Graph, plans: Sequence[Plan], *, seed: int = 0, seconds: float
    ) -> Sequence[TimedPlan]:
        raise LookupError("a table holds segments, no plans")

    def measure_by_steps(
        self, graph: Graph, plan: Plan, meanings: Meanings, *, seed: int = 0, seconds: float
    ) -> TimedPlan:
        raise LookupError("a table holds segments, no plans")

    def compile_for_plans(
        self,
        kernels: Sequence[Kernel],
        graph: Graph | None = None,
        *,
        seed: int = 0,
        together: bool = False,
        optional: bool = False,
        quickly: bool = False,
    ) -> Sequence[Binary | Failed]:
        raise LookupError("a table holds times, no binaries")


def median_training(row: Row) -> float:
    return statistics.median(row.training)
