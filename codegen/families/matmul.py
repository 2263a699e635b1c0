"""Family `matmul`: a contraction with everything that is computed of its result; on CUDA see `matmul_cuda`.

On a CPU, panel by panel: each task has the library multiply a few rows into a buffer of its own that stays in cache,
then runs the rest of the segment over these rows: any pointwise ops and views, any number of operands and outputs.
Operands narrower than the sum are widened on the way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import prod

from codegen.families import matmul_cuda
from codegen.families.kernel_function import kernel_function
from codegen.families.loop_nest import KEEP_BYTES, has_chains, lower
from codegen.families.pointwise import MAX_NODES
from codegen.families.product_rules import beside, dependents, not_pointwise, too_many
from codegen.gemm.call import GemmCall, call_on_cpu, first_libraries, has_fma, libraries_for, linked_with
from codegen.gemm.dims import Digit, alone, contraction, long_contract, sum_dtype, with_scratch
from codegen.gemm.tasks import AxisSplit, count_tasks, offset_text, task_lines
from codegen.kernel import EmitError, Kernel, Launch, Reject
from codegen.lowering.access import alignments
from codegen.lowering.code_length import first_short, halved, least_lanes, too_much
from codegen.lowering.program import Program
from codegen.lowering.stores import pull_outputs
from codegen.lowering.value import Value, cone
from codegen.printer.emit import Body, Style, emit_body
from codegen.printer.expressions import CTYPE
from codegen.schedule import Choices, Schedule, parse_schedule
from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.ops import OpKind, make
from fusion_ir.records import Device

KINDS = {OpKind.INPUT, OpKind.POINTWISE, OpKind.VIEW, OpKind.RANDOM, OpKind.CONTRACT}
SCRATCH_BYTES = 1 << 21  # of a panel: it lies on the stack of the thread, which has 8 MiB as a rule
ALIGN = 16  # elements: rows of a panel start at multiples of it
MOST_TASKS_PER_UNIT = 8
WHOLE_ROWS = 1 << 30  # lanes of a tile: rows are never cut


@dataclass(frozen=True)
class MatmulSchedule(Schedule):
    """library: `openblas`, `packed`, `packed32` or `pairs` (see codegen/gemm/call.py). rows: most rows of a panel.
    axes: order of the product's axes in scratch memory, its `own` or that of the first `output`. lanes: elements of a
    vector behind the product. store: `plain`, or `stream` past the caches."""

    FAMILY = "matmul"
    library: str
    rows: int
    axes: str
    lanes: int
    store: str


class Matmul:
    """See the module."""

    name = "matmul"

    def accepts(self, segment: Graph, device: Device) -> Reject | None:
        if reject := self.fits(segment, device):
            return reject
        if device.target != "cpu":
            return matmul_cuda.lowered(segment)
        orders, fault = _orders(segment, has_fma(device))
        return None if orders else Reject(fault)

    def fits(self, segment: Graph, device: Device) -> Reject | None:
        if device.target != "cpu":
            return matmul_cuda.fits(segment)
        node = long_contract(segment)
        if isinstance(node, Reject):
            return node
        if reject := too_many(segment, MAX_NODES):
            return reject
        if sum(n > 1 for n in node.sizes) < 2:
            return Reject("the product is a vector: its rows have one element")
        if reject := not_pointwise(segment, KINDS):
            return reject
        reached = dependents(segment, node)
        if len(reached) == 1 and node.dtype == sum_dtype(node):
            return Reject("computes nothing of the product: a library call alone does it")
        if reject := beside(segment, reached) or too_much(segment):
            return reject
        return _fault(alone(segment, node), has_fma(device))

    def space(self, segment: Graph, device: Device) -> tuple[str, ...]:
        if device.target != "cpu":
            return matmul_cuda.space(segment, device)
        native = max(device.vector_bytes // 4, 4)
        return tuple(
            str(MatmulSchedule(library, rows, axes, lanes, store))
            for axes in _orders(segment, has_fma(device))[0]
            for library in _libraries(segment, device, first_libraries)
            for lanes in ((4 * native, 2 * native) if has_chains(segment) else (native, 2 * native))
            for rows in (256, 128, 512)
            for store in ("plain", "stream")
        )

    def choices(self, segment: Graph, device: Device) -> Choices:
        if device.target != "cpu":
            return matmul_cuda.choices(segment, device)
        native = max(device.vector_bytes // 4, 4)
        return {
            "library": _libraries(segment, device, libraries_for),
            "rows": (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024),
            "axes": _orders(segment, has_fma(device))[0],
            "lanes": (native, 2 * native, 4 * native, 8 * native),
            "store": ("plain", "stream"),
        }

    def emit(self, segment: Graph, schedule: str, device: Device) -> Kernel:
        if device.target != "cpu":
            return matmul_cuda.emit(segment, schedule, device)
        s = parse_schedule(schedule, MatmulSchedule)
        node = _product(segment)
        layouts = _layouts(segment, node)
        if s.axes not in layouts:
            raise EmitError(f"axes={s.axes}, expected one of {', '.join(layouts)}")
        return _emit(segment, node, layouts[s.axes], s, device)


@lru_cache(maxsize=1024)
def _orders(segment: Graph, fma: bool) -> tuple[tuple[str, ...], str]:
    """Orders of axes that can be lowered; why the first one cannot, where none can."""
    node, found, fault = _product(segment), list[str](), ""
    try:
        layouts = _layouts(segment, node)
    except EmitError as error:
        return (), str(error)
    for axes, strides in layouts.items():
        try:
            behind = _behind(segment, node, strides)
            program = _program(behind, lanes=1)
            _panels(*_lowered(segment, node, strides, behind, program, fma, stream=False), rows=1, units=1)
            found.append(axes)
        except EmitError as error:
            fault = fault or str(error)
    return tuple(found), fault


def _call(segment: Graph, node: Node, fma: bool) -> GemmCall | Reject:
    """The product's library call, if its result lay in rows of its own."""
    found = contraction(segment, node, _digits(node, _padded(node.sizes, range(len(node.sizes)))), widened=True)
    return found if isinstance(found, Reject) else call_on_cpu(found, fma)


@lru_cache(maxsize=1024)
def _fault(product: Graph, fma: bool) -> Reject | None:
    """Why no library call computes a product, None where one does."""
    call = _call(product, product.outputs[0].node, fma)
    return call if isinstance(call, Reject) else None


def _libraries(
    segment: Graph, device: Device, of: Callable[[GemmCall, Graph, Device], tuple[str, ...]]
) -> tuple[str, ...]:
    call = _call(segment, _product(segment), has_fma(device))
    return () if isinstance(call, Reject) else of(call, segment, device)


@dataclass(frozen=True)
class _Panels:
    """How tasks share the rows of a product in scratch memory. cuts: of its outermost axes, which the loop around the
    rest of the kernel runs over. elements: size of the scratch memory that a panel takes, in elements."""

    cuts: list[AxisSplit]
    elements: int


def _behind(segment: Graph, node: Node, strides: tuple[int, ...]) -> Graph:
    """The rest of the segment as a graph that reads the product from scratch memory. Raises EmitError."""
    return _rows_first(with_scratch(segment, node, strides, sum_dtype(node)))


def _program(behind: Graph, lanes: int) -> Program:
    return lower(behind, lanes, WHOLE_ROWS, WHOLE_ROWS, least_tasks=1, keep_bytes=KEEP_BYTES)


def _lowered(
    segment: Graph,
    node: Node,
    strides: tuple[int, ...],
    behind: Graph,
    program: Program,
    fma: bool,
    *,
    stream: bool,
    register_bytes: int = 64,
) -> tuple[GemmCall, Body, int]:
    """The product's call, the text behind it, and the elements of a row. Raises EmitError."""
    row = _row_elements(program, len(segment.inputs))
    found = contraction(segment, node, _digits(node, strides), apart=row, widened=True)
    call = found if isinstance(found, Reject) else call_on_cpu(found, fma, row)
    if isinstance(call, Reject):
        raise EmitError(call.reason)
    style = Style("cpu", alignments(behind), stream=stream, register_bytes=register_bytes)
    return call, emit_body(program, style), row


def _emit(segment: Graph, node: Node, strides: tuple[int, ...], s: MatmulSchedule, device: Device) -> Kernel:
    stream = s.store == "stream"
    behind = _behind(segment, node, strides)
    program = first_short((_program(behind, lanes) for lanes in halved(s.lanes, least_lanes(segment, device))), device)
    call, body, row = _lowered(
        segment, node, strides, behind, program, has_fma(device), stream=stream, register_bytes=device.vector_bytes
    )
    panels = _panels(call, body, row, rows=s.rows, units=device.units)
    scratch = len(segment.inputs)
    ctype = CTYPE[call.of.dtype.name]
    prologue = [
        f"alignas(64) {ctype} scratch[{panels.elements}];",
        *task_lines(call, s.library, panels.cuts, "scratch", from_start=True),
        # As if the whole result were there: the loops below touch this task's rows only.
        f"const {ctype}* RESTRICT in{scratch} = before(scratch, {offset_text(panels.cuts)});",
    ]
    chains = has_chains(segment)
    entry, source = kernel_function(segment, body.text, "cpu", prologue=prologue, streams=stream, interleave=chains)
    launch = Launch(tasks=count_tasks(panels.cuts))
    accesses = tuple(a for a in body.accesses if a.tensor != f"in{scratch}")
    return Kernel(entry, source, "cpu", "matmul", str(s), launch, accesses, libraries=linked_with(s.library))


def _row_elements(program: Program, scratch: int) -> int:
    """Elements of scratch memory that one iteration of the program's outermost loop reads. Raises EmitError unless
    there is one such loop, and each of its iterations has consecutive rows for itself."""
    roots = {key.path[0].axis for key in program.blocks if key.path}
    loads = [v for v in _values(program) if v.op == "load" and v.tensor == scratch]
    if len(roots) != 1 or not loads:
        raise EmitError(f"what is behind the product runs in {len(roots)} loops, expected one over its rows")
    (root,) = roots
    rows = {v.offset.coef(root) for v in loads if root not in v.offset.opaque_axes and not v.offset.fetched}
    if len(rows) != 1 or 0 in rows or any(root in v.offset.opaque_axes for v in loads):
        raise EmitError("what is behind the product does not run over its rows")
    (row,) = rows
    if any(v.offset.low < 0 or v.offset.high - row * (root.extent - 1) >= row for v in loads):
        raise EmitError("what is behind the product reads several of its rows at once")
    return row


def _values(program: Program) -> list[Value]:
    written = (w.value for block in program.blocks.values() for w, _ in block.writes)
    return cone([*written, *(v for block in program.blocks.values() for v in block.values)])


def _panels(call: GemmCall, body: Body, row: int, *, rows: int, units: int) -> _Panels:
    """Panels of a product. rows: most rows of a panel. units: threads that share the panels. Raises EmitError."""
    of = call.of
    outer = sorted((d for d in of.outer if d.c >= row), key=lambda d: -d.c)
    nested = all(high.c == low.c * low.extent for high, low in pairwise(outer))
    ((iterations, _),) = body.roots
    if not outer or not nested or outer[-1].c != row or prod(d.extent for d in outer) != iterations:
        raise EmitError(f"the loop behind the product runs {iterations} times, over no whole axes of the product")
    *whole, last = outer
    batches = prod(d.extent for d in whole)
    rows = min(rows, SCRATCH_BYTES // (row * of.dtype.bytes))
    if not rows:
        raise EmitError(f"a row of {row} elements does not fit into {SCRATCH_BYTES} bytes of scratch memory")
    pieces = -(-last.extent // rows)
    if batches * pieces < MOST_TASKS_PER_UNIT * units:  # as many for every thread
        pieces = next(p for p in range(pieces, pieces + units) if batches * p % units == 0)
    cut = AxisSplit(last, min(pieces, last.extent))
    return _Panels([*(AxisSplit(d, d.extent) for d in whole), cut], cut.longest * row)


def _product(segment: Graph) -> Node:
    node = long_contract(segment)
    if isinstance(node, Reject):
        raise EmitError(node.reason)
    return node


def _rows_first(behind: Graph) -> Graph:
    """The graph with the axes of each output in the order in which the product in scratch memory has them, at unchanged
    places in memory: loops then run over the product's rows outside.

        out0: relu(permute(%scratch, [1, 0])) strides [8, 1]  ->  out0: permute(that, [1, 0]) strides [1, 8]
    """
    outputs: list[OutputSpec] = []
    for i, o in enumerate(behind.outputs):
        steps = _steps(behind, i)
        dims = sorted(range(o.node.rank), key=lambda d: -steps[d])
        turned = make("permute", [o.node], {"dims": tuple(dims)})
        outputs.append(OutputSpec(turned, tuple(o.strides[d] for d in dims)))
    return Graph(behind.inputs, tuple(outputs))


def _steps(behind: Graph, output: int) -> list[int]:
    """For each axis of an output, how far a step along it (the outermost of its digits) goes in the scratch memory."""
    o = behind.outputs[output]
    pulled = pull_outputs(Graph(behind.inputs, (o,)))
    roots, _, _ = pulled.pull()
    loads = [v.offset for v in cone(roots) if v.op == "load" and v.tensor == len(behind.inputs) - 1]
    return [
        max((e.coef(a) for e in loads for store in pulled.stores for a in store.index[d].axes), default=0)
        for d in range(o.node.rank)
    ]


def _layouts(segment: Graph, node: Node) -> dict[str, tuple[int, ...]]:
    """Strides of the product in scratch memory that are worth trying, by their name in a schedule (`axes`)."""
    own = tuple(range(len(node.sizes)))
    found = {"own": _padded(node.sizes, own)}
    dense = dense_strides(node.sizes)
    order: dict[int, None] = {}
    for step in _steps(with_scratch(segment, node, dense, node.dtype), 0):
        order.update({d: None for d in own if step and dense[d] <= step < dense[d] * node.sizes[d]})
    if len(order) == len(own) and tuple(order) != own:
        found["output"] = _padded(node.sizes, tuple(order))
    return found


def _padded(sizes: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor with its axes in this order, outermost first, with room behind each run of the last one: runs
    are aligned, never joined with each other, and seldom a power of two apart."""
    strides, step = [1] * len(sizes), 1
    for i, d in enumerate(reversed(order)):
        strides[d] = step
        step *= sizes[d]
        if i == 0:
            step = -(-step // ALIGN) * ALIGN + ALIGN
    return tuple(strides)


def _digits(node: Node, strides: Sequence[int]) -> list[Digit]:
    weights = dense_strides(node.sizes)
    return [Digit(w, n, s) for w, n, s in zip(weights, node.sizes, strides, strict=True) if n > 1]
