"""Loop program -> text of its body: C++ over `Vec<T, W>`, which loops_cpu.h and loops_cuda.cuh both give a meaning."""

from collections.abc import Callable

from codegen.lowering.program import Program
from codegen.printer.body import Body, Printer
from codegen.printer.cpu import cpu_dialect
from codegen.printer.cuda import cuda_dialect
from codegen.printer.dialect import Dialect
from codegen.printer.draft import Draft
from codegen.printer.style import Style
from fusion_ir.records import TargetKind

DIALECTS: dict[TargetKind, Callable[[Draft], Dialect]] = {"cpu": cpu_dialect, "cuda": cuda_dialect}

__all__ = ["Body", "Style", "emit_body"]


def emit_body(program: Program, style: Style) -> Body:
    """Prints a loop program. Raises EmitError where threads cannot share it as the style says."""
    return Printer(program, style, DIALECTS[style.target]).body()
