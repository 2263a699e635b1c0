"""Family `attention` on a CPU: rows of a product that are reduced, and perhaps multiplied again, while they are in the
caches.

Softmax of scores, and all of attention. Each task has a library multiply a few rows into scratch memory, runs what is
computed of them there, reductions along the rows among it, and has it multiply what came of that by the other matrix.
Columns that are blank for all rows of a task, such as those above the diagonal of causal scores, take no products.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from codegen.attention.blank_columns import BlankColumns, blank_columns
from codegen.attention.phases import Phases, phases_of
from codegen.families.kernel_function import kernel_function
from codegen.families.loop_nest import KEEP_BYTES, has_chains, lower
from codegen.families.past_caches import stores
from codegen.gemm.call import GemmCall, call_on_cpu, extent, first_libraries, has_fma, libraries_for, linked_with
from codegen.gemm.dims import Dim, contraction, is_computed, sum_dtype, with_scratch
from codegen.gemm.panels import (
    Panels,
    batches_of,
    cut_alike,
    cut_rows,
    digits,
    loads_of,
    padded,
    row_elements,
    rows_first,
    stores_of,
)
from codegen.gemm.tasks import count_tasks, task_lines
from codegen.kernel import Access, EmitError, Kernel, Launch, Reject
from codegen.lowering.access import alignments
from codegen.lowering.code_length import first_short, halved, least_lanes, too_much
from codegen.lowering.program import Program
from codegen.printer.emit import Body, Style, emit_body
from codegen.printer.expressions import CTYPE
from codegen.schedule import Choices, Schedule, parse_schedule
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.ops import OpKind, kind_of
from fusion_ir.ops.contract import ORDERED_PRODUCTS, products
from fusion_ir.records import Device

WHOLE_ROWS = 1 << 30  # lanes of a tile: rows are never cut
LINE = 64  # bytes
DEAR = 4.0  # values that take no more arithmetic than this are computed again, not kept
ROWS = (128, 64, 256, 32, 512)


@dataclass(frozen=True)
class CpuAttentionSchedule(Schedule):
    """library: of both products (see codegen/gemm/call.py). rows: most rows of a task. lanes: elements of a vector.
    store: `plain`, or `stream` past the caches."""

    FAMILY = "attention"
    library: str
    rows: int
    lanes: int
    store: str


@dataclass(frozen=True)
class Stage:
    """A product into scratch memory, and what is computed of it. graph: the product's, whose operands are inputs.
    behind: reads the product as its last input. rows: of the product, of all batches. row: elements of scratch memory
    from row to row."""

    graph: Graph
    product: Node
    behind: Graph
    call: GemmCall
    rows: int
    row: int

    @property
    def scratch(self) -> int:
        """Number of the input that stands for the product."""
        return len(self.behind.inputs) - 1

    @property
    def row_bytes(self) -> int:
        """Bytes of scratch memory that a row takes."""
        return self.row * self.call.of.dtype.bytes


@dataclass(frozen=True)
class Stages:
    """A segment in one stage, or in two: weights is then the operand of the second product that follows from the first,
    in scratch memory, too."""

    first: Stage
    second: Stage | None
    weights: Node | None

    @property
    def weights_row(self) -> int:
        """Elements of scratch memory from row to row of `weights`."""
        return _weights_strides(self.weights)[-2] if self.weights else 0

    @property
    def row_bytes(self) -> int:
        """Bytes of scratch memory that a row takes in all."""
        weights = self.weights_row * self.weights.dtype.bytes if self.weights else 0
        return self.first.row_bytes + weights + (self.second.row_bytes if self.second else 0)


def fits(segment: Graph, device: Device) -> Reject | None:
    """Why the family refuses a segment by its ops and shapes."""
    phases = phases_of(segment)
    if isinstance(phases, Reject):
        return phases
    if any(kind_of(n) is OpKind.GATHER for n in segment.nodes):
        return Reject("gathers elements")
    return _computed_operand(phases) or too_much(segment)


def lowered(segment: Graph, device: Device) -> Reject | None:
    """Why no schedule can compute a segment that `fits`."""
    fault = _fault(segment, has_fma(device))
    if fault:
        return Reject(fault)
    return None if _libraries(segment, device, first=False) else Reject("no library multiplies both pairs of matrices")


def space(segment: Graph, device: Device) -> tuple[str, ...]:
    """See `Family`."""
    native = max(device.vector_bytes // 4, 4)
    return tuple(
        str(CpuAttentionSchedule(library, rows, lanes, "plain"))
        for library in _libraries(segment, device, first=True)
        for lanes in (4 * native, 2 * native)
        for rows in ROWS
    )


def choices(segment: Graph, device: Device) -> Choices:
    """See `Family`."""
    native = max(device.vector_bytes // 4, 4)
    return {
        "library": _libraries(segment, device, first=False),
        "rows": tuple(sorted((*ROWS, 16, 96, 192, 1024))),
        "lanes": (native, 2 * native, 4 * native, 8 * native),
        "store": stores(segment, device, ("plain", "stream")),
    }


def emit(segment: Graph, schedule: str, device: Device) -> Kernel:
    """See `Family`."""
    s = parse_schedule(schedule, CpuAttentionSchedule)
    stages = _accepted(segment, has_fma(device))
    first, second = stages.first, stages.second
    stream = s.store == "stream"
    printed = [_printed(stage.behind, stage.rows, device, s.lanes, stream=stream) for stage in _each(stages)]
    for stage, (program, _) in zip(_each(stages), printed, strict=True):
        _check(stage, program, stages.weights_row if stage is first and second else 0)
    panels, again = _panels(stages, s.rows, device.units)
    tasks = count_tasks(panels.cuts)
    lines = [f"const idx_t row = (idx_t)({first.rows}l * task / tasks);"]
    blank, columns = _blank(first, printed[0][0]), first.product.sizes[-1]
    seen: dict[Dim, str] = {}
    if blank and first.call.n:
        last = f"(idx_t)({first.rows}l * (task + 1) / tasks - 1) % {blank.rows}"
        lines.append(f"const idx_t seen = between(0, {last} + {blank.beyond + 1}, {columns});")
        seen = {first.call.n: "seen"}
    lines += _scratch("product0", first, panels.rows)
    if second and stages.weights and again:
        weights, row = CTYPE[stages.weights.dtype.name], stages.weights_row
        lines.append(f"alignas({LINE}) {weights} weights[{panels.rows * row}];")
        lines += _scratch("product1", second, panels.rows)
        out = f"{weights}* RESTRICT out0 = ({weights}*)before(weights, row * {row});"
        lines += _stage(first, "product0", s.library, panels, printed[0][1], seen, out)
        given = f"const {weights}* RESTRICT in{first.scratch} = before(weights, row * {row});"
        needed = _needed(second.call, first.scratch, columns) if seen else {}
        lines += _stage(second, "product1", s.library, again, printed[1][1], needed, given=given)
    else:
        lines += _stage(first, "product0", s.library, panels, printed[0][1], seen)
    chains = has_chains(segment)
    entry, source = kernel_function(
        segment, "\n".join(f"  {line}" for line in lines), "cpu", streams=stream, interleave=chains
    )
    own = {f"in{i}" for i in range(len(segment.inputs))}
    accesses: list[Access] = []
    for stage, (_, body) in zip(_each(stages), printed, strict=True):
        written = stage is not first or not second
        accesses += [a for a in body.accesses if a.tensor in own or (written and a.tensor.startswith("out"))]
    found = tuple(dict.fromkeys(accesses))
    return Kernel(entry, source, "cpu", s.FAMILY, str(s), Launch(tasks=tasks), found, libraries=linked_with(s.library))


def _panels(stages: Stages, rows: int, units: int) -> tuple[Panels, Panels | None]:
    """Panels of both products, of the same rows. Raises EmitError."""
    first, second = stages.first, stages.second
    multiple = batches_of(second.call, second.rows, second.row) if second else 1
    panels = cut_rows(
        first.call, first.rows, first.row, rows=rows, row_bytes=stages.row_bytes, units=units, multiple=multiple
    )
    if second is None:
        return panels, None
    return panels, cut_alike(second.call, second.rows, second.row, count_tasks(panels.cuts))


def _scratch(name: str, stage: Stage, rows: int) -> list[str]:
    return [f"alignas({LINE}) {CTYPE[stage.call.of.dtype.name]} {name}[{rows * stage.row}];"]


def _stage(
    stage: Stage,
    name: str,
    library: str,
    panels: Panels,
    body: Body,
    extents: Mapping[Dim, str],
    out: str = "",
    given: str = "",
) -> list[str]:
    """Statements of a stage: the product into the array `name`, then what is behind it. given, out: where its left
    operand comes from and its results go, where that is scratch memory. extents: see `task_lines`."""
    ctype = CTYPE[stage.call.of.dtype.name]
    return [
        "{",
        *([f"  {given}"] if given else []),
        *(f"  {line}" for line in task_lines(stage.call, library, panels.cuts, name, from_start=True, extents=extents)),
        # As if the whole tensors were there: the loops below touch this task's rows only.
        f"  const {ctype}* RESTRICT in{stage.scratch} = before({name}, row * {stage.row});",
        *([f"  {out}"] if out else []),
        body.text,
        "}",
    ]


def _needed(call: GemmCall, weights: int, columns: int) -> dict[Dim, str]:
    """How many terms the sums of the second product need, of which those behind the first `seen` may be 0. weights:
    number of the input that follows from the first product."""
    if call.of.a.tensor != weights or call.a_turned or call.is_spread or call.k.extent != columns:
        return {}
    sizes = f"{str(call.b_turned).lower()}, {{m}}, {extent(call.n)}, {columns}"
    return {call.k: f"terms_needed({sizes}, seen, {{a}}, {call.lda}, {{b}}, {call.ldb})"}


def _printed(behind: Graph, rows: int, device: Device, lanes: int, *, stream: bool) -> tuple[Program, Body]:
    """The loop program behind a product, and its text. Raises EmitError."""
    programs = (
        lower(behind, n, WHOLE_ROWS, WHOLE_ROWS, least_tasks=1, keep_bytes=KEEP_BYTES, dear=DEAR)
        for n in halved(lanes, least_lanes(behind, device))
    )
    program = first_short(programs, device)
    style = Style("cpu", alignments(behind), stream=stream, grid_least=rows, register_bytes=device.vector_bytes)
    body = emit_body(program, style)
    if [count for count, _ in body.roots] != [rows]:
        raise EmitError(f"what is behind the product does not run over its {rows} rows, one by one")
    return program, body


def _check(stage: Stage, program: Program, weights_row: int) -> None:
    """Raises EmitError unless each row's results follow from that row, and go to that row of scratch memory."""
    row_elements(program, loads_of(program, stage.scratch), stage.rows)
    if weights_row and row_elements(program, stores_of(program), stage.rows) != weights_row:
        raise EmitError("weights are stored in other rows than the product's")


def _blank(stage: Stage, program: Program) -> BlankColumns | None:
    """Columns of the product that are not read, where each task's rows are of one matrix, and columns are those of the
    library's call."""
    blank, call = blank_columns(program, stage.scratch, stage.row), stage.call
    matrix = next((d for d in call.of.outer if d.c == stage.row), None)
    whole = matrix is not None and matrix.extent == (blank.rows if blank else 0)
    return blank if whole and call.n and call.n.extent == stage.product.sizes[-1] else None


def _each(stages: Stages) -> tuple[Stage, ...]:
    return (stages.first, stages.second) if stages.second else (stages.first,)


def _weights_strides(weights: Node) -> tuple[int, ...]:
    return padded(weights.sizes, range(weights.rank), LINE // weights.dtype.bytes)


def _libraries(segment: Graph, device: Device, *, first: bool) -> tuple[str, ...]:
    """Libraries that can compute all products, the one first that is fastest as a rule."""
    stages = _accepted(segment, has_fma(device))
    of = first_libraries if first else libraries_for
    found = [of(stage.call, stage.graph, device) for stage in _each(stages)]
    return tuple(library for library in found[0] if all(library in others for others in found))


def _accepted(segment: Graph, fma: bool) -> Stages:
    """The segment's stages. Raises EmitError."""
    found = _stages(segment, fma)
    if isinstance(found, str):
        raise EmitError(found)
    return found


def _computed_operand(phases: Phases) -> Reject | None:
    """The refusal of an operand that is not in memory, and not the one that follows from the first product."""
    operands = list(zip("ab", phases.product.args, strict=True))
    if phases.second:
        other = 1 - phases.side
        operands.append(("ab"[other], phases.second.args[other]))
    names = (name for name, node in operands if is_computed(node, widened=True))
    return next((Reject(f"operand {name} is computed, not stored") for name in names), None)


@lru_cache(maxsize=1024)
def _fault(segment: Graph, fma: bool) -> str:
    """Why the segment cannot be lowered, "" where it can."""
    try:
        stages = _accepted(segment, fma)
        for stage in _each(stages):
            program = lower(stage.behind, 1, WHOLE_ROWS, WHOLE_ROWS, least_tasks=1, keep_bytes=KEEP_BYTES, dear=DEAR)
            _check(stage, program, stages.weights_row if stage is stages.first and stages.second else 0)
        _panels(stages, rows=1, units=1)
    except EmitError as error:
        return str(error)
    return ""


@lru_cache(maxsize=1024)
def _stages(segment: Graph, fma: bool) -> Stages | str:
    """The segment's stages, or why it has none."""
    phases = phases_of(segment)
    if isinstance(phases, Reject):
        return phases.reason
    try:
        return _in_stages(segment, phases, fma)
    except EmitError as error:
        return str(error)


def _in_stages(segment: Graph, phases: Phases, fma: bool) -> Stages:
    product, second = phases.product, phases.second
    weights = second.args[phases.side] if second else None
    if product.rank < 2 or (weights is not None and weights.rank < 2):
        raise EmitError("the product has no rows")
    outputs = segment.outputs
    if weights is not None:
        outputs = (OutputSpec(weights, _weights_strides(weights)),)
    first = _made(segment, product, Graph(segment.inputs, outputs), range(product.rank), product.rank - 1, fma)
    if weights is None or second is None:
        return Stages(first, None, None)
    again = with_scratch(segment, weights, outputs[0].strides, weights.dtype)
    long = [n for n in again.nodes if _is_long(n)]
    if len(long) != 1 or any(kind_of(n) is OpKind.REDUCTION for n in again.nodes):
        raise EmitError("what is behind the second product needs more than that product")
    place = second.ints("ab"[phases.side] + "_axes")  # of each axis in the weights, -1 of those that they lack
    down = sorted((d for d in range(second.rank) if place[d] >= 0), key=lambda d: place[d])
    order = [*down, *(d for d in range(second.rank) if place[d] < 0)]
    found = Stages(first, _made(again, long[0], again, order, len(down), fma), weights)
    _check_rows(found)
    return found


def _check_rows(stages: Stages) -> None:
    """Raises EmitError unless a row of weights gives the row of the same number of the second product."""
    if stages.second:
        of = stages.second.call.of
        for d in of.outer:
            step = d.a if of.a.tensor == stages.first.scratch else d.b
            if d.c >= stages.second.row and step * stages.second.row != d.c * stages.weights_row:
                raise EmitError("rows of the second product do not follow from those of the first one by one")


def _made(graph: Graph, product: Node, outputs: Graph, order: Sequence[int], down: int, fma: bool) -> Stage:
    """The stage of a graph's product, and of `outputs` behind it. order: of the product's axes in scratch memory, of
    which the first `down` are its rows. Raises EmitError."""
    if not 0 < down < product.rank:
        raise EmitError("the product has no rows, or no columns")
    strides = padded(product.sizes, order)
    row, rows = strides[order[down - 1]], prod(product.sizes[d] for d in order[:down])
    behind = rows_first(with_scratch(outputs, product, strides, sum_dtype(product)))
    if any(_is_long(n) for n in behind.nodes):
        raise EmitError("what is behind the first product needs another one")
    found = contraction(graph, product, digits(product, strides), apart=row, widened=True)
    call = found if isinstance(found, Reject) else call_on_cpu(found, fma, row)
    if isinstance(call, Reject):
        raise EmitError(call.reason)
    return Stage(graph, product, behind, call, rows, row)


def _is_long(node: Node) -> bool:
    return node.op == "contract" and products(node) > ORDERED_PRODUCTS
