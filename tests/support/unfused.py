"""Plans of one kernel for each op, made without a search."""

from codegen.families import FAMILIES
from codegen.kernel import EmitError, Kernel
from codegen.toolchain.compiler import Binary
from codegen.workbench.step_check import Meanings
from codegen.workbench.workbench import Workbench
from fusion_ir.core.graph import Graph
from fusion_ir.records import Plan, Search, Status
from scheduler.interfaces import Forgetful
from scheduler.plans.assemble import Choice, assemble, meanings_of
from scheduler.rewrites.prepare import prepare
from scheduler.segments.enumeration import Candidate
from scheduler.tune import unfused_segments
from scheduler.tuning.trials import Ledger

SEARCH = Search(seconds=0, candidates=0, measured=0, complete=False)


def unfused_plan(graph: Graph, bench: Workbench) -> tuple[Plan, Meanings]:
    """By the first schedule of each op, compiled in as few files as may be, and what its steps are to compute."""
    prepared = prepare(graph)
    ledger = Ledger(bench.device, FAMILIES, Forgetful(), None, 0)
    cover = unfused_segments(prepared.graph, ledger)
    kernels = [_first(ledger, c) for c in cover]
    distinct = {k.entry: k for k in kernels}
    made = bench.compile_for_plans(list(distinct.values()), together=True)
    binaries = {entry: b for entry, b in zip(distinct, made, strict=True) if isinstance(b, Binary)}
    choices = [
        Choice(c.segment, ledger.model.traffic(c), k, binaries[k.entry], None)
        for c, k in zip(cover, kernels, strict=True)
    ]
    plan = assemble(prepared, bench.device, choices, SEARCH)
    return plan, meanings_of(prepared, [c.segment for c in cover])


def _first(ledger: Ledger, candidate: Candidate) -> Kernel:
    """By the first schedule that one can be emitted of."""
    while variant := ledger.choice(candidate):
        try:
            return ledger.kernel(candidate, variant)
        except EmitError as e:
            ledger.reject(candidate, variant, Status.rejected, str(e))
    raise AssertionError(f"no kernel for {candidate.segment.graph}")
