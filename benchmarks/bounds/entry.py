"""Corpus cases that one kernel computes, with the kernels that are tried."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from benchmarks.corpus.case import Case, Instance
from benchmarks.machine import RESULTS
from benchmarks.tuner.replay import tables
from codegen.child.cpu_memory import layouts
from codegen.families import FAMILIES
from codegen.kernel import EmitError, Kernel
from fusion_ir.records import Device
from scheduler.cost.traffic import Traffic, traffic_of

CPU_RESULTS = "cpu_*.json"  # of benchmarks.cpu, on several machines
SCHEDULES = 5  # of a family, of which the fastest is taken


@dataclass(frozen=True, eq=False)
class BoundCase:
    """A case that one kernel computes, and kernels that do."""

    case: Case
    dtype: str
    instance: Instance
    kernels: tuple[Kernel, ...]
    traffic: Traffic

    @property
    def name(self) -> str:
        return f"{self.case.name} {self.dtype}"

    @property
    def tensor_bytes(self) -> list[int]:
        """Bytes of each input, then of each output."""
        return [layout.bytes for part in layouts(self.instance.graph) for layout in part]


def chosen(case: Case, dtype: str, known: Sequence[str], device: Device) -> BoundCase | None:
    """The case with kernels of these schedules and of the first one of their family; None where there is none."""
    if not known:
        return None
    instance = case.instance(dtype)
    emitted: dict[str, Kernel] = {}
    usual = FAMILIES[_family(known[0])]
    accepted = usual.accepts(instance.graph, device) is None
    for schedule in (*known, *(usual.space(instance.graph, device) if accepted else ())):
        family = FAMILIES[_family(schedule)]
        if len(emitted) < SCHEDULES and family.accepts(instance.graph, device) is None:
            with suppress(EmitError, ValueError, KeyError):  # of a generator before this one, it may be none any more
                kernel = family.emit(instance.graph, schedule, device)
                emitted.setdefault(kernel.entry, kernel)
    return BoundCase(case, dtype, instance, tuple(emitted.values()), traffic_of(instance.graph)) if emitted else None


def schedules() -> dict[tuple[str, str], list[str]]:
    """Schedules of one kernel that did well before, in the tables and in the benchmarks, by (case, dtype)."""
    found: dict[tuple[str, str], list[str]] = {}
    for table in tables():
        name, _, dtype = table.name.rpartition("_")
        best = min((row.truth, schedule) for schedule, row in table.rows.items() if row.training)
        found[name, dtype] = [best[1]]
    for file in sorted(RESULTS.glob(CPU_RESULTS)):
        for o in json.loads(file.read_text())["outcomes"]:
            known = found.setdefault((o["name"], o["dtype"]), [])
            if not o["problem"] and len(o["kernels"]) == 1 and o["kernels"][0] not in known:
                known.append(o["kernels"][0])
    return found


def _family(schedule: str) -> str:
    return schedule.partition("{")[0]
