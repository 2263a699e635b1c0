"""Choosing schedules where nothing can be timed: several of each segment are compiled, and the compiler's reports say
which spill, and how many of their threads a multiprocessor holds."""

from codegen.kernel import EmitError, Kernel
from codegen.schedule import Variant
from codegen.toolchain.compiler import Binary
from fusion_ir.records import CompileReport, Status
from scheduler.cover.oracle import Proposal
from scheduler.interfaces import Bench
from scheduler.segments.enumeration import Candidate
from scheduler.tuning.trials import Ledger

COMPILED = 4  # schedules of a segment


def settle(cover: Proposal, ledger: Ledger, bench: Bench) -> None:
    """Makes the schedule with the best prediction the next one of every segment of the cover.

    Looks at the first schedules of the family that is predicted to be the fastest there. Those that do not compile or
    are not worth timing (`CompileReport.fault`) are noted as such; where all are at fault, the one that spills least
    stays.
    """
    emitted = {c: _first(c, ledger) for c in dict.fromkeys(cover)}
    by_entry = {k.entry: k for kernels in emitted.values() for k in kernels}
    results = dict(zip(by_entry, bench.compile_for_plans(list(by_entry.values()), seed=ledger.seed), strict=True))
    for candidate, kernels in emitted.items():
        sound: list[tuple[float, int, Variant]] = []
        faulty: list[tuple[int, int, Variant, str]] = []
        for number, kernel in enumerate(kernels):
            variant, result = (kernel.family, kernel.schedule), results[kernel.entry]
            if not isinstance(result, Binary):
                ledger.reject(candidate, variant, result.status, result.detail)
                continue
            report = result.report or CompileReport()
            if report.fault:
                faulty.append((report.spill_bytes or 0, number, variant, report.fault))
            else:
                sound.append((ledger.model.expected_us(candidate, kernel, report), number, variant))
        if not sound and faulty:
            ledger.prefer(candidate, min(faulty)[2])
            faulty.remove(min(faulty))
        for _, _, variant, fault in faulty:
            ledger.reject(candidate, variant, Status.dropped, fault)
        if sound:
            ledger.prefer(candidate, min(sound)[2])


def _first(candidate: Candidate, ledger: Ledger) -> list[Kernel]:
    """Different kernels of the first schedules that the best family lowers."""
    pending = ledger.logs.open(candidate).pending
    family = pending[0][0] if pending else ""
    found: dict[object, Kernel] = {}
    for variant in [v for v in pending if v[0] == family]:
        if variant not in pending:
            break  # so many before it could not be lowered that the family was left
        try:
            kernel = ledger.kernel(candidate, variant)
        except EmitError as e:
            ledger.reject(candidate, variant, Status.rejected, str(e))
            continue
        found.setdefault(kernel.identity, kernel)
        if len(found) == COMPILED:
            break
    return list(found.values())
