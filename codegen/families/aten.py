"""Family `aten`: one contraction by the BLAS library, as a framework without fusion would run it.

Operands and the product are reached through any views that keep a unit stride: transposed, sliced, permuted,
broadcast, batched; operands whose neighbours are near each other in any order, by a main loop of ours
(`spread_call`). On a CPU our own threads share the work; the library runs on the thread that calls it. Operands
narrower than the sum, also by a cast in the graph, are widened, and products narrower than it rounded, block by block
in the caches; whole numbers, which no BLAS multiplies, are by a main loop of ours. On a GPU it is
cuBLASLt, with its scale, bias and matrix added where the graph rounds no earlier than it does; its gelu is an
approximation by tanh that is not ours, and its relu makes 0 of NaN.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from codegen.families import aten_calls
from codegen.families.kernel_function import kernel_function
from codegen.gemm.call import (
    GemmCall,
    call_on_cpu,
    extent,
    first_libraries,
    has_fma,
    libraries_for,
    linked_with,
    spread_call,
)
from codegen.gemm.dims import contraction, long_contract, stored_product
from codegen.gemm.tasks import AxisSplit, count_tasks, task_lines
from codegen.kernel import EmitError, Kernel, Launch, Reject
from codegen.schedule import Choices, Schedule, parse_schedule
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device

LEAST_PIECE = 16  # rows or columns of a task: fewer leave the library's kernels idle
PIECES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


@dataclass(frozen=True)
class AtenSchedule(Schedule):
    """library: `openblas`, `packed`, `amx` or another (see codegen/gemm/call.py). rows, columns: pieces that each
    product of two matrices is cut into; every piece is a task."""

    FAMILY = "aten"
    library: str
    rows: int
    columns: int


class Aten:
    """See the module."""

    name = "aten"

    def accepts(self, segment: Graph, device: Device) -> Reject | None:
        if device.target != "cpu":
            return aten_calls.accepts(segment, device)
        call = _call(segment, device)
        return call if isinstance(call, Reject) else None

    def space(self, segment: Graph, device: Device) -> tuple[str, ...]:
        if device.target != "cpu":
            return aten_calls.space(device)
        call = _call(segment, device)
        assert isinstance(call, GemmCall)
        cuts = dict.fromkeys(cut for tasks in (1, 2, 4) for cut in _cuttings(call, tasks * device.units)) or [(1, 1)]
        libraries = first_libraries(call, segment, device)
        return tuple(str(AtenSchedule(library, *cut)) for cut in cuts for library in libraries)

    def choices(self, segment: Graph, device: Device) -> Choices:
        if device.target != "cpu":
            return aten_calls.choices()
        call = _call(segment, device)
        assert isinstance(call, GemmCall)
        rows, columns = (tuple(p for p in PIECES if p == 1 or extent(d) >= LEAST_PIECE * p) for d in (call.m, call.n))
        return {"library": libraries_for(call, segment, device), "rows": rows, "columns": columns}

    def emit(self, segment: Graph, schedule: str, device: Device) -> Kernel:
        if device.target != "cpu":
            return aten_calls.emit(segment, schedule, device)
        s = parse_schedule(schedule, AtenSchedule)
        call = _call(segment, device)
        if isinstance(call, Reject):
            raise EmitError(call.reason)
        cuts = _cuts(call, s)
        lines = task_lines(call, s.library, cuts, "out0", from_start=False)
        entry, source = kernel_function(segment, "\n".join(f"  {line}" for line in lines), "cpu")
        launch = Launch(tasks=count_tasks(cuts))
        return Kernel(entry, source, "cpu", self.name, str(s), launch, libraries=linked_with(s.library))


def _call(segment: Graph, device: Device) -> GemmCall | Reject:
    node = long_contract(segment)
    if isinstance(node, Reject):
        return node
    result = stored_product(segment, node)
    if isinstance(result, Reject):
        return result
    found = contraction(segment, node, result, widened=True)
    call = found if isinstance(found, Reject) else call_on_cpu(found, has_fma(device))
    if isinstance(found, Reject) or isinstance(call, Reject) or node.dtype == call.of.dtype:
        return call
    if all(not d.summed for d in call.loops):
        return call
    own = spread_call(found, has_fma(device))
    if isinstance(own, GemmCall):
        return own
    return Reject(f"several library calls sum up one element, which is rounded to {node.dtype} after the last")


def _batches(call: GemmCall) -> int:
    """Products of two matrices that are apart in the result."""
    count = 1
    for d in call.loops:
        count *= 1 if d.summed else d.extent
    return count


def _cuttings(call: GemmCall, tasks: int) -> Iterator[tuple[int, int]]:
    """Pieces of rows and of columns: ways to at least so many tasks from pieces that are not too small, the squarest
    pieces first."""
    pieces = -(-tasks // _batches(call))
    m, n = extent(call.m), extent(call.n)
    pairs = [(p, pieces // p) for p in range(1, pieces + 1) if pieces % p == 0]
    for rows, columns in sorted(pairs, key=lambda pair: (abs(m // pair[0] - n // pair[1]), pair)):
        if (rows == 1 or m >= LEAST_PIECE * rows) and (columns == 1 or n >= LEAST_PIECE * columns):
            yield rows, columns


def _cuts(call: GemmCall, s: AtenSchedule) -> list[AxisSplit]:
    cuts = [AxisSplit(d, d.extent) for d in call.loops if not d.summed]
    for dim, pieces in ((call.m, s.rows), (call.n, s.columns)):
        if pieces > extent(dim) or pieces < 1:
            raise EmitError(f"{extent(dim)} rows or columns cannot be cut into {pieces} pieces")
        cuts += [AxisSplit(dim, pieces)] if dim and pieces > 1 else []
    return cuts
