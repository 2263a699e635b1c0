"""Runs one kernel of a whole graph on given inputs, as a plan of one step."""

from collections.abc import Sequence

import numpy as np

from codegen.families import FAMILIES
from codegen.toolchain.compiler import Binary
from codegen.workbench.workbench import Workbench
from fusion_ir.core.graph import Graph
from fusion_ir.records import Search
from scheduler.cost.traffic import traffic_of
from scheduler.plans.assemble import Choice, assemble
from scheduler.rewrites.prepare import prepare
from scheduler.segments.atoms import atoms_of
from scheduler.segments.segment import extract

NO_SEARCH = Search(seconds=0, candidates=0, measured=0, complete=False)


def run_kernel(
    bench: Workbench, graph: Graph, family: str, schedule: str, inputs: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """The outputs of `graph`, computed by one kernel of a family."""
    prepared = prepare(graph)
    atoms = atoms_of(prepared.graph)
    segment = extract(atoms, atoms.piece(atoms.all))
    kernel = FAMILIES[family].emit(segment.canonical.graph, schedule, bench.device)
    (binary,) = bench.compile([kernel])
    assert isinstance(binary, Binary), binary
    choice = Choice(segment, traffic_of(segment.graph), kernel, binary, None)
    return bench.run(assemble(prepared, bench.device, [choice], NO_SEARCH), inputs)
