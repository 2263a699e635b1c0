"""The operands of a tiled product as functions of a point: where a run of one lies in memory, or how it is computed.

    struct Left : Copied<BYTES, DEPTH_LAST> { const T* at(batch, row, column) const; };
    struct Left : Computed<DEPTH_LAST> { Vec<T, W> operator()(batch, row, column, int left) const; };

An operand is read through any views; its axes in any order give strides, never a copy. Its rows are those of the
product (of the right operand: columns of the product) and its columns the products of a sum; without DEPTH_LAST, the
other way round.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

from codegen.hardware.architectures import ACCESS_BYTES
from codegen.kernel import Access, EmitError
from codegen.lowering.access import Pattern, alignments, pattern
from codegen.lowering.canonical_inputs import with_own_inputs
from codegen.lowering.index import volume
from codegen.lowering.stores import pull_outputs
from codegen.lowering.unify import unify
from codegen.lowering.value import TooManyValues, Value, cone
from codegen.printer.draft import in_order
from codegen.printer.expressions import CTYPE
from codegen.tiled.functor import Functor, PointPrinter, aligned, braced, fields_of, tensors_of
from codegen.tiled.points import Piece, Points, located, writes_at_points
from codegen.tiled.problem import Problem
from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType
from fusion_ir.ops import make
from fusion_ir.records import Device

LEAST_COPY_BYTES = 4  # of what a thread can have copied
APART = 2.0  # elements that lie apart come with neighbours that are not wanted


@dataclass(frozen=True)
class Tiles:
    """The elements of tiles, and how they get there. dtype: holds all values of the operands. run: elements that a
    thread puts into a tile at once. copied: whether operands in memory may be copied without passing through threads.
    across: whether a tile can be read across, so that depth need not be last."""

    dtype: DType
    run: int
    copied: bool
    across: bool


@dataclass(frozen=True)
class TileOperand:
    """One operand as a function of points, for runs of `run` columns. copied: columns that one copy from memory moves,
    which `run` is then; 0 where the operand must be computed or does not lie in whole words."""

    segment: Graph
    dtype: DType
    depth_last: bool
    pieces: tuple[Piece, ...]
    points: Points
    run: int
    copied: int

    @cached_property
    def cost(self) -> float:
        """Bytes to load, a short access counting as a whole one."""
        return sum(load_cost(self.segment, piece) for piece in self.pieces)


def operand(segment: Graph, problem: Problem, tiles: Tiles, *, right: bool, depth_last: bool) -> TileOperand:
    """The left or right operand as tiles hold it. Raises EmitError."""
    dtype, run = tiles.dtype, tiles.run
    node, wheres = problem.operand(right, depth_last=depth_last)
    x = node if node.dtype == dtype else make("cast", [node], {"dtype": dtype})
    graph = Graph(segment.inputs, (OutputSpec(x, tuple(where.stride for where in wheres)),))
    writes, axes = writes_at_points(graph)
    lines = problem.extent("column" if right else "row")
    columns, rows = (problem.depth, lines) if depth_last else (lines, problem.depth)

    def at_points(most: int) -> tuple[tuple[Piece, ...], Points]:
        points = Points((columns, rows, problem.extent("batch")), axes)
        return tuple(located(write, write.offset, points, most) for write in writes), points

    pieces, points = at_points(run)
    copied = _copied(segment, pieces, columns) if tiles.copied else 0
    if copied and copied < run:
        pieces, points = at_points(copied)
    return TileOperand(segment, dtype, depth_last, pieces, points, copied or run, copied)


def check_operand(segment: Graph, node: Node) -> None:
    """Raises EmitError where `operand` does. An operand that several segments share is looked at once."""
    dense = OutputSpec(node, dense_strides(node.sizes))  # where its elements are put makes no difference
    if fault := _fault(with_own_inputs(Graph(segment.inputs, (dense,)))[0]):
        raise EmitError(fault)


@lru_cache(maxsize=1024)
def _fault(alone: Graph) -> str:
    try:
        pulled = pull_outputs(alone)
        if pulled.bound.pieces:
            unify(pulled)
    except TooManyValues as error:
        return str(error)
    return ""


def load_cost(segment: Graph, piece: Piece, without: int | None = None) -> float:
    """Bytes that a piece loads from all tensors but `without`, a short access counting as a whole one."""
    cost = 0.0
    for v in cone([piece.write.value]):
        if v.op == "load" and v.tensor != without:
            found = _pattern(segment, piece, v, piece.width)
            cost += access_cost(found, v.dtype.bytes) * volume(v.offset.axes) * v.dtype.bytes
    return cost


def access_cost(found: Pattern, itemsize: int) -> float:
    """Bytes that accesses of a pattern move for each byte that is used."""
    if found.kind == "splat":
        return 1.0
    return ACCESS_BYTES / min(found.width * itemsize, ACCESS_BYTES) * (1.0 if found.kind == "vector" else APART)


def _copied(segment: Graph, pieces: tuple[Piece, ...], columns: int) -> int:
    if len(pieces) != 1 or pieces[0].conditions or pieces[0].write.value.op != "load":
        return 0
    (piece,), value = pieces, pieces[0].write.value
    if value.offset.fetched:  # addresses are computed for places outside the matrix, too, where there is no index
        return 0
    found = _pattern(segment, piece, value, min(piece.width, columns & -columns))
    return found.width if found.kind == "vector" and found.width * value.dtype.bytes >= LEAST_COPY_BYTES else 0


def _pattern(segment: Graph, piece: Piece, load: Value, width: int) -> Pattern:
    alignment = max(segment.inputs[load.tensor].alignment_bytes // load.dtype.bytes, 1)
    return pattern(load.offset, piece.lane, width, alignment)


def operand_functor(of: TileOperand, name: str, device: Device) -> Functor:
    """The operand as text."""
    style = aligned(of.segment, alignments(of.segment), min(device.vector_bytes, 16))
    printer = PointPrinter(of.points, of.pieces, style, of.run, None)
    members, ctype = tensors_of(of.pieces), CTYPE[of.dtype.name]
    fields = fields_of(of.segment, members)
    depth_last = str(of.depth_last).lower()
    base = f"Copied<{of.copied * of.dtype.bytes}, {depth_last}>" if of.copied else f"Computed<{depth_last}>"
    point = "idx_t batch, idx_t row, idx_t column"
    if of.copied:
        method = f"VDEV const {ctype}* at({point}) const"
        value = of.pieces[0].write.value
        for _ in printer.runs(of.pieces):
            printer.lines.add(f"return in{value.tensor} + {printer.names.expr(value.offset)};")
        accesses: tuple[Access, ...] = (Access(members[0], "vector", of.copied),)
    else:
        method = f"VDEV Vec<{ctype}, {of.run}> operator()({point}, int left) const"
        _compute(printer, of, ctype)
        accesses = in_order(printer.draft.accesses)
    text = braced(f"struct {name} : {base}", fields, {method: printer.lines.text})
    return Functor(name, text, ("{}", *members), accesses, printer.names.reach)


def _compute(printer: PointPrinter, of: TileOperand, ctype: str) -> None:
    """Prints a run of an operand: one piece at once, several pieces each where its conditions hold."""
    masked = of.depth_last and of.points.extents[0] % of.run != 0
    printer.lines.add(f"Vec<{ctype}, {of.run}> run = {{}};")
    for own in printer.runs(of.pieces):
        for piece in own:
            with printer.where(piece):
                printer.define(piece)
                value = printer.spread(piece)
                printer.lines.add(
                    f"run = {value};" if printer.whole else f"put_part<{piece.width}>(run, part_number, {value});"
                )
    printer.lines.add(f"return {'only_first(run, left)' if masked else 'run'};")
