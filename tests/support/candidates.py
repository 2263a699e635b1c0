"""Every kernel that a family makes of a graph, through the same check that a search puts it through."""

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from codegen.families import FAMILIES
from codegen.kernel import EmitError, Kernel
from codegen.schedule import schedule_text
from codegen.toolchain.compiler import Binary
from codegen.workbench.workbench import Workbench
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device, Measurement, Search, Status
from scheduler.cost.traffic import traffic_of
from scheduler.plans.assemble import Choice, assemble
from scheduler.rewrites.prepare import prepare
from scheduler.segments.atoms import atoms_of
from scheduler.segments.segment import extract
from tests.support.products import STATISTICS

# Said to schedules of family `aten` that name an algorithm beyond the library's list (codegen/families/aten_calls.py).
BEYOND_THE_LIST = re.compile(r"rejected: cuBLASLt has (\d+) algorithms for this call, not \d+$")
# Said to schedules that their compile report leaves out where another of their family is sound
# (codegen/workbench/outcome.py).
DROPPED_FOR_SPILLS = re.compile(r"dropped: spills [1-9]\d* bytes of registers in each thread$")
LIBRARY = re.compile(r"library=\w+")
NO_SEARCH = Search(seconds=0, candidates=0, measured=0, complete=False)


def kernels_of(graph: Graph, family: str, bench: Workbench, *, most: int = 100) -> list[Kernel]:
    """Kernels of the family's first schedules, by each library that there is, each once. Fails if it refuses the
    graph."""
    reject = FAMILIES[family].accepts(graph, bench.device)
    assert reject is None, reject
    schedules = FAMILIES[family].space(graph, bench.device)[:most]
    libraries = FAMILIES[family].choices(graph, bench.device).get("library", ())
    others = [
        LIBRARY.sub(f"library={library}", s)
        for library in libraries
        if not any(f"library={library}," in s for s in schedules)
        for s in schedules
    ]
    found = {
        k.entry: k
        for s in dict.fromkeys((*schedules, *others))
        for k in [FAMILIES[family].emit(graph, s, bench.device)]
    }
    return list(found.values())


def drawn_kernels(
    graph: Graph, bench: Workbench, families: Iterable[str], seed: int, *, first: int, drawn: int
) -> list[Kernel]:
    """Kernels by the `first` schedules of each family that takes the graph, and by `drawn` others of its choices, each
    once; those that no kernel can have are left out. Fails if there is none."""
    rng = random.Random(seed)
    found: dict[str, Kernel] = {}
    for name in families:
        family = FAMILIES[name]
        if family.accepts(graph, bench.device) is not None:
            continue
        choices = family.choices(graph, bench.device)
        others = [
            schedule_text(name, {k: rng.choice(v) for k, v in choices.items()}) for _ in range(drawn if choices else 0)
        ]
        for schedule in (*family.space(graph, bench.device)[:first], *others):
            try:
                kernel = family.emit(graph, schedule, bench.device)
            except EmitError:
                continue
            found[kernel.entry] = kernel
    assert found
    return list(found.values())


def is_beyond_the_list(line: str) -> bool:
    """Whether a line of `check_all` says no more than that the library's list is shorter, and not empty."""
    found = BEYOND_THE_LIST.search(line)
    return found is not None and int(found[1]) > 0


def is_dropped_for_spills(line: str) -> bool:
    """Whether a line of `check_all` says no more than that the kernel was not run, since it spills registers."""
    return DROPPED_FOR_SPILLS.search(line) is not None


def check_all(cases: Sequence[tuple[str, Graph, list[Kernel]]], bench: Workbench) -> list[str]:
    """A line for each kernel that does not do what its graph says. Compiled together, checked one graph at a time."""
    bench.compile([k for _, _, kernels in cases for k in kernels])
    wrong: list[str] = []
    for name, graph, kernels in cases:
        for row in bench.measure(graph, name, kernels):
            if row.status is not Status.ok:
                wrong.append(f"{name} {row.schedule}: {row.status.value}: {row.detail[:300]}")
    return wrong


def assert_right(cases: Iterable[tuple[str, Graph]], family: str, bench: Workbench, *, most: int = 100) -> None:
    """The family takes each graph, and its kernels do what the graph says."""
    wrong = check_all([(name, graph, kernels_of(graph, family, bench, most=most)) for name, graph in cases], bench)
    assert not wrong, "\n".join(wrong)


def check_statistics(bench: Workbench) -> None:
    """Every family that takes a product with statistics of its rows, or of its columns, computes them: tasks that have
    some of the rows do not know the columns."""
    cases: list[tuple[str, Graph, list[Kernel]]] = []
    for name, graph in STATISTICS.items():
        for family in FAMILIES.values():
            if family.accepts(graph, bench.device) is None:
                emitted = [family.emit(graph, s, bench.device) for s in family.space(graph, bench.device)[:2]]
                cases.append((f"{family.name} {name}", graph, emitted))
    assert any("along 1" in name for name, _, _ in cases)
    wrong = check_all(cases, bench)
    assert not wrong, "\n".join(wrong)


def only_row(graph: Graph, kernel: Kernel, bench: Workbench) -> Measurement:
    """The row of one kernel."""
    (row,) = bench.measure(graph, "one", [kernel])
    return row


def row_with_fault(
    graph: Graph, kernel: Kernel, pattern: str, instead: str, bench: Workbench, *, first: bool = False
) -> Measurement:
    """The row of a right kernel with `instead` in the only place of its source that matches, or in the first one."""
    assert only_row(graph, kernel, bench).status is Status.ok
    source, count = re.subn(pattern, instead, kernel.source, count=int(first))
    assert count == 1, kernel.source
    return only_row(graph, replace(kernel, source=source), bench)


def refusal(graph: Graph, family: str, device: Device) -> str:
    """Why the family refuses the graph; empty if it takes it."""
    reject = FAMILIES[family].accepts(graph, device)
    return reject.reason if reject else ""


def run_kernel(graph: Graph, kernel: Kernel, inputs: Sequence[np.ndarray], bench: Workbench) -> list[np.ndarray]:
    """Outputs of a kernel made for the whole graph, run as a plan of one step. The graph's boundary must be in
    canonical order."""
    prepared = prepare(graph)
    atoms = atoms_of(prepared.graph)
    segment = extract(atoms, atoms.piece(atoms.all))
    (binary,) = bench.compile([kernel])
    assert isinstance(binary, Binary), binary
    plan = assemble(
        prepared, bench.device, [Choice(segment, traffic_of(segment.graph), kernel, binary, None)], NO_SEARCH
    )
    return bench.run(plan, inputs)
