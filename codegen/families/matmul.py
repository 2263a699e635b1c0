"""Family `matmul`: a contraction with everything that is computed of its result; on CUDA see `matmul_cuda`.

On a CPU, panel by panel: each task has the library multiply a few rows into a buffer of its own that stays in cache,
then runs the rest of the segment over these rows: any pointwise ops and views, any number of operands and outputs.
Operands narrower than the sum are widened on the way.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from codegen.families import matmul_cuda
from codegen.families.kernel_function import kernel_function
from codegen.families.loop_nest import KEEP_BYTES, has_chains, lower
from codegen.families.past_caches import stores
from codegen.families.pointwise import MAX_NODES
from codegen.families.product_rules import beside, dependents, not_pointwise, too_many
from codegen.gemm.call import GemmCall, call_on_cpu, first_libraries, has_fma, libraries_for, linked_with
from codegen.gemm.column_blocks import has_column_blocks, in_column_blocks
from codegen.gemm.dims import alone, contraction, long_contract, sum_dtype, with_scratch
from codegen.gemm.panels import Panels, cut_rows, digits, loads_of, padded, row_elements, rows_first, steps_of
from codegen.gemm.tasks import count_tasks, offset_text, task_lines
from codegen.kernel import EmitError, Kernel, Launch, Reject
from codegen.lowering.access import alignments
from codegen.lowering.code_length import first_short, halved, least_lanes, too_much
from codegen.lowering.program import Program
from codegen.printer.emit import Body, Style, emit_body
from codegen.printer.expressions import CTYPE
from codegen.schedule import Choices, Schedule, parse_schedule
from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.ops import OpKind
from fusion_ir.records import Device

KINDS = {OpKind.INPUT, OpKind.POINTWISE, OpKind.VIEW, OpKind.RANDOM, OpKind.CONTRACT}
WHOLE_ROWS = 1 << 30  # lanes of a tile: rows are never cut
FEW_ROWS = 512  # threads that share columns of 256 rows take 3 to 25 % less time than those that share the rows
COLUMNS = {f"columns{n}": n for n in (2, 4, 8, 16)}


@dataclass(frozen=True)
class MatmulSchedule(Schedule):
    """library: `openblas`, `packed`, `amx` or another (see codegen/gemm/call.py). rows: most rows of a panel.
    axes: order of the product's axes in scratch memory, its `own` or that of the first `output`; or `columns2`: its
    own, but columns in so many blocks outside. lanes: elements of a vector behind the product. store: `plain`, or
    `stream` past the caches."""

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
        fault = _not_lowered(segment, has_fma(device))
        return Reject(fault) if fault else None

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
        orders = _orders(segment, has_fma(device))
        libraries = _libraries(segment, device, first_libraries)
        widths = (4 * native, 2 * native) if has_chains(segment) else (native, 2 * native)
        first, *others = (
            MatmulSchedule(library, rows, axes, lanes, store)
            for axes in orders
            if axes not in COLUMNS
            for library in libraries
            for lanes in widths
            for rows in (256, 128, 512)
            for store in stores(segment, device, ("plain", "stream"))
        )
        narrow = all(segment.inputs[m].dtype.bytes < 4 for m in _matrices(segment, device))
        counts = [n * device.units for n in ((2, 4, 1) if narrow else (1, 2, 4))]
        blocks = [first.replaced(axes=axes) for n in counts for axes in orders if COLUMNS.get(axes) == n]
        few = device.units > 1 and prod(_product(segment).sizes[:-1]) <= FEW_ROWS
        ahead = (*blocks, first) if few else (first, *blocks)
        return tuple(map(str, (*ahead, *others)))

    def choices(self, segment: Graph, device: Device) -> Choices:
        if device.target != "cpu":
            return matmul_cuda.choices(segment, device)
        native = max(device.vector_bytes // 4, 4)
        return {
            "library": _libraries(segment, device, libraries_for),
            "rows": (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024),
            "axes": _orders(segment, has_fma(device)),
            "lanes": (native, 2 * native, 4 * native, 8 * native),
            "store": stores(segment, device, ("plain", "stream")),
        }

    def emit(self, segment: Graph, schedule: str, device: Device) -> Kernel:
        if device.target != "cpu":
            return matmul_cuda.emit(segment, schedule, device)
        s = parse_schedule(schedule, MatmulSchedule)
        layouts = dict(_layouts(segment))
        if s.axes not in layouts:
            raise EmitError(f"axes={s.axes}, expected one of {', '.join(layouts)}")
        return _emit(layouts[s.axes], s, device)


@dataclass(frozen=True)
class _Layout:
    """A product in scratch memory. segment: computes what the family is asked for, by `product`. rows: how many
    iterations the outermost loops behind it have when they are joined; None where they are not."""

    segment: Graph
    product: Node
    strides: tuple[int, ...]
    rows: int | None = None

    @property
    def scratch(self) -> int:
        """Number of the input that stands for the product."""
        return len(self.segment.inputs)


@lru_cache(maxsize=1024)
def _not_lowered(segment: Graph, fma: bool) -> str:
    """Why the first order of axes cannot be lowered, where none can; "" where one can. The others are not looked at."""
    faults: list[str] = []
    for _, fault in _faults(segment, fma):
        if not fault:
            return ""
        faults.append(fault)
    return faults[0]


@lru_cache(maxsize=1024)
def _orders(segment: Graph, fma: bool) -> tuple[str, ...]:
    """Orders of axes that can be lowered."""
    return tuple(axes for axes, fault in _faults(segment, fma) if not fault)


def _faults(segment: Graph, fma: bool) -> Iterator[tuple[str, str]]:
    """Orders of axes, and why each cannot be lowered, "" where it can. Columns in blocks only where another can."""
    is_lowered = False
    try:
        for axes, layout in _layouts(segment):
            if axes not in COLUMNS or is_lowered:
                fault = _fault_behind(layout, fma)
                is_lowered |= not fault
                yield axes, fault
    except EmitError as error:
        yield "output", str(error)


@lru_cache(maxsize=1024)
def _fault_behind(layout: _Layout, fma: bool) -> str:
    """Why the rest of the segment cannot be lowered behind a product that lies so, "" where it can."""
    try:
        behind = _behind(layout)
        _panels(*_lowered(layout, behind, _program(behind, lanes=1), fma, stream=False), rows=1, units=1)
    except EmitError as error:
        return str(error)
    return ""


def _call(segment: Graph, node: Node, fma: bool) -> GemmCall | Reject:
    """The product's library call, if its result lay in rows of its own."""
    found = contraction(segment, node, digits(node, padded(node.sizes, range(len(node.sizes)))), widened=True)
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


def _matrices(segment: Graph, device: Device) -> tuple[int, ...]:
    """Numbers of the inputs that are multiplied."""
    call = _call(segment, _product(segment), has_fma(device))
    return () if isinstance(call, Reject) else (call.of.a.tensor, call.of.b.tensor)


def _behind(layout: _Layout) -> Graph:
    """The rest of the segment as a graph that reads the product from scratch memory. Raises EmitError."""
    return rows_first(with_scratch(layout.segment, layout.product, layout.strides, sum_dtype(layout.product)))


def _program(behind: Graph, lanes: int) -> Program:
    return lower(behind, lanes, WHOLE_ROWS, WHOLE_ROWS, least_tasks=1, keep_bytes=KEEP_BYTES)


def _lowered(
    layout: _Layout, behind: Graph, program: Program, fma: bool, *, stream: bool, register_bytes: int = 64
) -> tuple[GemmCall, Body, int]:
    """The product's call, the text behind it, and the elements of a row. Raises EmitError."""
    product, strides = layout.product, layout.strides
    row = row_elements(program, loads_of(program, layout.scratch), layout.rows)
    found = contraction(layout.segment, product, digits(product, strides), apart=row, widened=True)
    call = found if isinstance(found, Reject) else call_on_cpu(found, fma, row)
    if isinstance(call, Reject):
        raise EmitError(call.reason)
    style = Style("cpu", alignments(behind), stream=stream, grid_least=layout.rows or 1, register_bytes=register_bytes)
    return call, emit_body(program, style), row


def _emit(layout: _Layout, s: MatmulSchedule, device: Device) -> Kernel:
    segment, scratch, stream = layout.segment, layout.scratch, s.store == "stream"
    behind = _behind(layout)
    program = first_short((_program(behind, lanes) for lanes in halved(s.lanes, least_lanes(segment, device))), device)
    call, body, row = _lowered(
        layout, behind, program, has_fma(device), stream=stream, register_bytes=device.vector_bytes
    )
    panels = _panels(call, body, row, rows=s.rows, units=device.units)
    ctype = CTYPE[call.of.dtype.name]
    prologue = [
        f"alignas(64) {ctype} scratch[{panels.rows * row}];",
        *task_lines(call, s.library, panels.cuts, "scratch", from_start=True),
        # As if the whole result were there: the loops below touch this task's rows only.
        f"const {ctype}* RESTRICT in{scratch} = before(scratch, {offset_text(panels.cuts)});",
    ]
    chains = has_chains(segment)
    entry, source = kernel_function(segment, body.text, "cpu", prologue=prologue, streams=stream, interleave=chains)
    launch = Launch(tasks=count_tasks(panels.cuts))
    accesses = tuple(a for a in body.accesses if a.tensor != f"in{scratch}")
    return Kernel(entry, source, "cpu", "matmul", str(s), launch, accesses, libraries=linked_with(s.library))


def _panels(call: GemmCall, body: Body, row: int, *, rows: int, units: int) -> Panels:
    """Panels of a product, of `row` elements a row. Raises EmitError."""
    ((iterations, _),) = body.roots
    return cut_rows(call, iterations, row, rows=rows, row_bytes=row * call.of.dtype.bytes, units=units)


def _product(segment: Graph) -> Node:
    node = long_contract(segment)
    if isinstance(node, Reject):
        raise EmitError(node.reason)
    return node


def _layouts(segment: Graph) -> Iterator[tuple[str, _Layout]]:
    """Layouts of the product in scratch memory that are worth trying, each after its name in a schedule (`axes`).
    Raises EmitError."""
    node = _product(segment)
    own = tuple(range(len(node.sizes)))
    yield "own", _Layout(segment, node, padded(node.sizes, own))
    dense = dense_strides(node.sizes)
    order: dict[int, None] = {}
    for step in steps_of(with_scratch(segment, node, dense, node.dtype), 0):
        order.update({d: None for d in own if step and dense[d] <= step < dense[d] * node.sizes[d]})
    if len(order) == len(own) and tuple(order) != own:
        yield "output", _Layout(segment, node, padded(node.sizes, tuple(order)))
    for name, blocks in COLUMNS.items():
        if has_column_blocks(node, blocks):
            graph, product = in_column_blocks(segment, node, blocks)
            rows = prod(product.sizes[:-1])
            yield name, _Layout(graph, product, padded(product.sizes, range(product.rank)), rows)
