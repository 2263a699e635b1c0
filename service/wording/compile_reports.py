"""Compile reports in words for a person."""

from collections.abc import Iterator

from fusion_ir.records import CompileReport
from service.wording.formatting import count, percent, size


def report_words(report: CompileReport) -> Iterator[str]:
    """The compiler's report on a kernel, a phrase per fact: "40 registers", "4 blocks (50 %) a multiprocessor"."""
    if report.code_bytes is not None:
        yield f"code {size(report.code_bytes)}"
    if report.frame_bytes is not None:
        yield f"stack {size(report.frame_bytes)}"
    if report.registers is not None:
        yield f"{report.registers} registers"
    if report.spill_bytes:
        yield f"{size(report.spill_bytes)} spilled"
    if shared := (report.shared_bytes or 0) + (report.dynamic_shared_bytes or 0):
        yield f"{size(shared)} shared"
    if report.blocks is not None:
        yield f"{count(report.blocks, 'block')} ({percent(report.occupancy)}) a multiprocessor"
    if report.warnings:
        yield f"wgmma serialised ({', '.join(report.warnings)})"
