"""Loop program -> text of its body: C++ over `Vec<T, W>`, which loops_cpu.h and loops_cuda.cuh both give a meaning."""

from codegen.lowering.program import Program
from codegen.printer.body import Body, BodyText
from codegen.printer.cuda_body import CudaBodyText
from codegen.printer.style import Style
from fusion_ir.records import TargetKind

PRINTERS: dict[TargetKind, type[BodyText]] = {"cpu": BodyText, "cuda": CudaBodyText}

__all__ = ["Body", "Style", "emit_body"]


def emit_body(program: Program, style: Style) -> Body:
    """Prints a loop program. Raises EmitError where threads cannot share it as the style says."""
    printer = PRINTERS[style.target](program, style)
    printer.nest((), depth=0)
    printer.finish()
    accesses = tuple(sorted(printer.accesses, key=lambda a: (a.tensor, a.kind, a.width)))
    return Body("\n".join(printer.lines), tuple(printer.roots), accesses, printer.shared_bytes, printer.reach)
