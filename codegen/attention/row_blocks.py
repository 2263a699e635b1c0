"""Phases as functions of a point of the product, of the value held there, and of the reductions' results in its row.

    struct Phase0 {
      Vec<float, 8> operator()(batch, row, column, const Vec<float, 8>& product, int left, const RowValues<N>&) const;
    };

The held tensor and the rows' results are inputs behind the segment's own, at strides that no tensor has
(codegen.tiled.points): so it shows whether a phase reads them at the point that it is computed for and in no other row.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product

from codegen.attention.phases import COMBINES, Phase, Phases, phases_of
from codegen.kernel import EmitError, Reject
from codegen.lowering.access import alignments
from codegen.lowering.canonical_inputs import with_own_inputs
from codegen.lowering.index import Affine, flatten
from codegen.lowering.int_narrowing import narrow
from codegen.lowering.stores import pull_outputs
from codegen.lowering.sums import identity
from codegen.printer.draft import in_order
from codegen.printer.expressions import CTYPE, literal, spell
from codegen.tiled.code_length import epilogue_length, operand_length, pieces_length
from codegen.tiled.epilogue import RUN, print_write
from codegen.tiled.functor import Functor, PointPrinter, aligned, braced, fields_of, tensors_of
from codegen.tiled.operand import TileOperand, Tiles, check_operand, operand
from codegen.tiled.orientation import orders_of
from codegen.tiled.points import BATCH, COLUMN, ROW, SCALE_BITS, Piece, Points, loads_of, located, writes_at_points
from codegen.tiled.problem import Problem, groups_of, problem_of
from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec, topological
from fusion_ir.core.node import Node, intern
from fusion_ir.dtype import bf16, f16, f32
from fusion_ir.ops import OPS, OpKind, make, make_input
from fusion_ir.ops.contract import ORDERED_PRODUCTS, products
from fusion_ir.records import Device

ALIGNMENT_BYTES = 64  # of inputs that are in registers: no address depends on it
Strides = tuple[int, ...]


@dataclass(frozen=True)
class LoweredCut:
    """A cut as a function of a point. held: number of the input that stands for the held tensor, None where nothing
    depends on that; inputs for the rows' results follow."""

    pieces: tuple[Piece, ...]
    points: Points
    held: int | None


@dataclass(frozen=True)
class RowBlocks:
    """A segment as one product whose rows are reduced, and perhaps multiplied again. cuts: a graph for each phase, of
    the tensor that it reduces; then the graph behind them, of all outputs or of the left operand of the second
    product."""

    segment: Graph
    phases: Phases
    problem: Problem
    cuts: tuple[Graph, ...]
    second: Problem | None

    @cached_property
    def lowered_cuts(self) -> tuple[LoweredCut, ...]:
        """The cuts, lowered."""
        held = len(self.segment.inputs)
        return tuple(_lowered(cut, held, range(held + 1, len(cut.inputs)), self.problem.extents) for cut in self.cuts)

    @cached_property
    def left(self) -> TileOperand:
        """The left operand of the first product."""
        return operand(self.segment, self.problem, self._tiles, right=False, depth_last=True)

    @cached_property
    def right(self) -> TileOperand:
        """The right operand of the first product."""
        return operand(self.segment, self.problem, self._tiles, right=True, depth_last=True)

    @cached_property
    def values(self) -> TileOperand | None:
        """The right operand of the second product."""
        return self.second and operand(self.segment, self.second, self._tiles, right=True, depth_last=False)

    @cached_property
    def lengths(self) -> tuple[tuple[float, float], tuple[float, float, float]]:
        """Code lengths of one call each (codegen/tiled/code_length.py): of all cuts together and of the epilogue of
        the second product; then of the operands `left`, `right` and `values`. 0 where there is no second product."""
        cuts = sum(pieces_length(cut.pieces, RUN) for cut in self.lowered_cuts)
        behind = epilogue_length(self.segment, self.second) if self.second else 0.0
        values = operand_length(self.values) if self.values else 0.0
        return (cuts, behind), (operand_length(self.left), operand_length(self.right), values)

    @property
    def _tiles(self) -> Tiles:
        return Tiles(self.phases.product.args[0].dtype, RUN, copied=True, across=True)


@lru_cache(maxsize=256)
def multiplied_phases(segment: Graph) -> Phases | Reject:
    """The segment's phases, or why it has none whose products tensor cores can compute."""
    phases = phases_of(segment)
    if isinstance(phases, Reject):
        return phases
    if odd := next((n for n in phases.reductions if not _is_combined(n)), None):
        return Reject(f"reduces by {odd.op} in {odd.args[0].dtype}; takes {', '.join(COMBINES)} of f32")
    dtypes = {a.dtype for n in (phases.product, phases.second) if n for a in n.args}
    if len(dtypes) != 1 or not dtypes <= {bf16, f16}:
        return Reject(f"multiplies {', '.join(sorted(map(str, dtypes)))}; takes bf16 or f16")
    if not phases.product.elements or (phases.second and not phases.second.elements):
        return Reject("the product is empty")
    return phases


def _is_combined(reduction: Node) -> bool:
    return reduction.op in COMBINES and reduction.dtype == reduction.args[0].dtype == f32


@lru_cache(maxsize=256)
def strips_of(segment: Graph) -> RowBlocks | Reject:
    """The segment by the first arrangement of the product's axes in which rows are reduced, or why there is none."""
    phases = multiplied_phases(segment)
    if isinstance(phases, Reject):
        return phases
    reason = ""
    for problem in _problems(phases.product):
        try:
            return _strips(segment, phases, problem)
        except EmitError as error:
            reason = reason or str(error)
    return Reject(reason)


def _problems(node: Node) -> Iterator[Problem]:
    for turned in (False, True):
        groups = groups_of(node, turned=turned)
        for rows, columns in product(orders_of(groups, "row"), orders_of(groups, "column")):
            yield problem_of(node, turned=turned, orders={"row": rows, "column": columns})


def _strips(segment: Graph, phases: Phases, problem: Problem) -> RowBlocks:
    """The segment by one arrangement of axes. A cut that several segments share is looked at once. Raises EmitError
    where some cut cannot be computed in strips of rows."""
    given: dict[Node, Strides] = {phases.product: tuple(where.stride for where in problem.result)}
    rows: dict[Node, Strides] = {}
    cuts: list[Graph] = []
    for step in phases.steps:
        strides = _strides(segment, step.operand, step.reads, given[step.reads], rows)
        cuts.append(_cut(segment, [OutputSpec(step.operand, strides)], step.reads, given[step.reads], rows))
        _check_cut(segment, cuts[-1], problem, whole=True)
        given[step.operand] = strides
        rows[step.reduction] = _row_strides(problem, step, strides)
    second = None
    outputs: Sequence[OutputSpec] = segment.outputs
    if phases.second:
        left = phases.second.args[phases.side]
        strides = _strides(segment, left, phases.reads, given[phases.reads], rows)
        second = _second_problem(problem, phases.second, phases.side, strides)
        check_operand(segment, phases.second.args[1 - phases.side])
        outputs = [OutputSpec(left, strides)]
    cuts.append(_cut(segment, outputs, phases.reads, given[phases.reads], rows))
    _check_cut(segment, cuts[-1], problem, whole=second is not None)
    for node in phases.product.args:
        check_operand(segment, node)
    return RowBlocks(segment, phases, problem, tuple(cuts), second)


def _cut(segment: Graph, outputs: Sequence[OutputSpec], held: Node, at: Strides, rows: Mapping[Node, Strides]) -> Graph:
    """The graph of `outputs` with the held tensor and the rows' results, f32 in registers, as further inputs. Raises
    EmitError where it needs a reduction or a long contraction besides."""
    specs, new = list(segment.inputs), dict[Node, Node]()
    for node, strides in ((held, at), *rows.items()):
        specs.append(InputSpec(node.shape, f32, strides, ALIGNMENT_BYTES))
        given = make_input(len(specs) - 1, specs[-1])
        new[node] = given if node.dtype == f32 else make("cast", [given], {"dtype": node.dtype})
    for n in topological(o.node for o in outputs):
        if n not in new:
            args = tuple(new[a] for a in n.args)
            new[n] = n if args == n.args else intern(n.op, args, dict(n.attrs), n.shape, n.dtype)
    cut = Graph(tuple(specs), tuple(OutputSpec(new[o.node], o.strides) for o in outputs))
    for n in cut.nodes:
        if n.op in OPS and (
            OPS[n.op].kind is OpKind.REDUCTION or (n.op == "contract" and products(n) > ORDERED_PRODUCTS)
        ):
            raise EmitError(f"{n.op} is needed where it is not at hand")
    return cut


def _strides(segment: Graph, node: Node, held: Node, at: Strides, rows: Mapping[Node, Strides]) -> Strides:
    """Strides of a node's axes in (batch, row, column), from the strides `at` of the held tensor. Raises EmitError."""
    cut = _cut(segment, [OutputSpec(node, dense_strides(node.sizes))], held, at, rows)
    alone, position = with_own_inputs(cut)
    found = _places(alone, position.get(len(segment.inputs)))
    if isinstance(found, str):
        raise EmitError(found)
    return found


@lru_cache(maxsize=1024)
def _places(alone: Graph, held: int | None) -> Strides | str:
    """Strides of a cut's output in (batch, row, column), or why it has none. alone: the cut with its own inputs. held:
    number of the input that stands for the held tensor."""
    pulled = pull_outputs(alone)
    values, _, _ = pulled.pull()
    (node,) = [o.node for o in alone.outputs]
    places = [] if held is None else loads_of(held, values[0])
    if len(values) != 1 or len(places) != 1:
        return f"{node.op} depends on the product at several points, or at none"
    (place,), (store,) = places, pulled.stores
    steps = [[place.coef(a) // e.coef(a) for a in e.axes if e.coef(a)] for e in store.index]
    strides = tuple(own[0] if own else 0 for own in steps)
    return strides if flatten(store.index, strides) == place else f"the axes of {node.op} are not those of the product"


def _row_strides(problem: Problem, step: Phase, strides: Strides) -> Strides:
    """Strides of a reduction's result. Raises EmitError where it does not reduce all columns and nothing else."""
    axes = step.reduction.ints("axes")
    for d, (stride, extent) in enumerate(zip(strides, step.operand.sizes, strict=True)):
        if extent > 1 and (stride < 1 << SCALE_BITS) != (d in axes):
            raise EmitError(f"{step.reduction.op} reduces other axes than the product's columns")
    return tuple(s for d, s in enumerate(strides) if d not in axes)


def _check_cut(segment: Graph, cut: Graph, problem: Problem, *, whole: bool) -> None:
    """Raises EmitError where a cut is no function of a point. whole: it must also compute every point once."""
    alone, position = with_own_inputs(cut)
    held, *rows = [position.get(i) for i in range(len(segment.inputs), len(cut.inputs))]
    used = tuple([row for row in rows if row is not None])
    if fault := _fault(alone, held, used, problem.extents, whole):
        raise EmitError(fault)


@lru_cache(maxsize=1024)
def _fault(alone: Graph, held: int | None, rows: tuple[int, ...], extents: tuple[int, int, int], whole: bool) -> str:
    try:
        pieces = _lowered(alone, held, rows, extents).pieces
    except EmitError as error:
        return str(error)
    if whole and (len(pieces) != 1 or pieces[0].conditions or pieces[0].repeats):
        return "other elements than those of the product are reduced"
    return ""


def _lowered(cut: Graph, held: int | None, rows: Sequence[int], extents: tuple[int, int, int]) -> LoweredCut:
    """A cut, lowered. held: number of the input that stands for the held tensor, None where nothing depends on it.
    rows: numbers of the inputs that stand for the rows' results. Raises EmitError."""
    writes, axes = writes_at_points(cut)
    batches, lines, columns = extents
    points = Points((columns, lines, batches), axes)
    pieces: list[Piece] = []
    for write in writes:
        places = [] if held is None else loads_of(held, write.value)
        if held is None or len(places) != 1:
            raise EmitError(f"depends on the product at {len(places)} points for each of its elements, expected 1")
        for row in rows:
            if any(place != _row_of(places[0]) for place in loads_of(row, write.value)):
                raise EmitError("what a row is reduced to is used in another row")
        pieces.append(located(write, places[0], points, RUN))
    writes = narrow([piece.write for piece in pieces], points.lanes.values())
    return LoweredCut(tuple(replace(p, write=w) for p, w in zip(pieces, writes, strict=True)), points, held)


def _row_of(place: Affine) -> Affine:
    """A point without its column."""
    terms = [(term, k) for term, k in place.terms if k >> SCALE_BITS]
    return Affine.of(place.c >> SCALE_BITS << SCALE_BITS, terms)


def _second_problem(problem: Problem, node: Node, side: int, strides: Strides) -> Problem:
    """The second contraction, its batches, rows and depth being the first one's batches, rows and columns. Raises
    EmitError where they are not."""
    found = problem_of(node, turned=bool(side))
    axes = node.ints("b_axes" if side else "a_axes")
    numbers = {"batch": BATCH, "row": ROW, "depth": COLUMN}
    weights = list(found.weights)
    for root, position in enumerate(axes):
        if position < 0 or found.root[root] == 1:
            continue
        number = (strides[position].bit_length() - 1) // SCALE_BITS
        if number != numbers[found.groups[root]]:
            raise EmitError("the second product is not one over the columns of the first")
        weights[root] = strides[position] >> SCALE_BITS * number
    second = Problem(node, found.root, found.groups, tuple(weights), found.turned)
    batches, rows, columns = problem.extents
    if (second.extent("batch"), second.extent("row"), second.depth) != (batches, rows, columns):
        raise EmitError("the second product has other batches or rows than the first")
    return second


# ---- as text
def cut_functor(segment: Graph, cut: LoweredCut, name: str, result: str | None, rows: int, device: Device) -> Functor:
    """A cut as a functor. result: type of the elements that it returns; None: it stores all outputs. rows: number of
    results of a row."""
    style = aligned(segment, alignments(segment), min(device.vector_bytes, 16))
    printer = PointPrinter(cut.points, cut.pieces, style, RUN, cut.held)
    if result:
        printer.lines.add(f"Vec<{result}, {RUN}> run;")
    for own in printer.runs(cut.pieces):
        for piece in own:
            with printer.where(piece):
                if result is None:
                    print_write(printer, piece)
                    continue
                printer.define(piece)
                value = printer.spread(piece)
                put = f"run = {value};" if printer.whole else f"put_part<{piece.width}>(run, part_number, {value});"
                printer.lines.add(put)
    if result:
        printer.lines.add("return run;")
    inputs = [t for t in tensors_of(cut.pieces) if int(t[2:]) < len(segment.inputs)]
    outputs = () if result else tuple(f"out{i}" for i in sorted({p.write.out for p in cut.pieces}))
    members = (*inputs, *outputs)
    kind = f"Vec<{result}, {RUN}>" if result else "void"
    point = "idx_t batch, idx_t row, idx_t column"
    given = f"const Vec<float, {RUN}>& product, int left, const RowValues<{rows}>& found"
    text = braced(
        f"struct {name}",
        fields_of(segment, members),
        {f"VDEV {kind} operator()({point}, {given}) const": printer.lines.text},
    )
    accesses = in_order(printer.draft.accesses)
    return Functor(name, text, members, accesses, printer.names.reach)


def lines_made(of: TileOperand, functor: Functor) -> str:
    """An operand's object in the kernel, as the `Lines` that it is made of."""
    step = 0
    if of.copied:
        (piece,) = of.pieces
        offset, rows = piece.write.value.offset, [(d, a) for (d, _), a in of.points.digits.items() if d.number == ROW]
        along = [a for d, a in rows if (d.start, d.period, d.step) == (0, 0, 1)]
        if len(rows) == len(along) == 1 and along[0] not in offset.opaque_axes:
            step = offset.coef(along[0])
    return f"Lines<{functor.name}, {step}>{{{functor.made}}}"


def reduce_call(step: Phase, number: int, phase: Functor) -> str:
    """The statement that computes and reduces a phase."""
    combine = COMBINES[step.reduction.op]
    join = f"[](const auto& a, const auto& b) {{ return {spell(combine, ['a', 'b'], f32)}; }}"
    kept = str(step.keeps).lower()
    return f"strip.template reduce<{number}, {kept}>({phase.made}, {literal(identity(combine, f32))}, {join});"


def element_type(node: Node) -> str:
    """C++ type of a node's elements."""
    return CTYPE[node.dtype.name]
