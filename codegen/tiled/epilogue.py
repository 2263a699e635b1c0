"""The epilogue: everything behind the product as a function of a point and the product's values there.

    struct Epilogue {
      struct Fetched { ... };
      Fetched fetch(idx_t batch, idx_t row, idx_t column, int left) const;
      void operator()(idx_t batch, idx_t row, idx_t column, const Vec<Acc, 8>& product, int left, const Fetched&) const;
    };

Loads at every point, from places that follow from the point alone, can be made before the product is there.
Views behind the product (reshape, permute, slice) only say where results go. Each element of an output depends on one
element of the product, or on none where it is padding.
"""

from functools import lru_cache

from codegen.gemm.dims import with_scratch
from codegen.kernel import EmitError
from codegen.lowering.access import alignments, pattern
from codegen.lowering.canonical_inputs import with_own_inputs
from codegen.lowering.index import volume
from codegen.printer.draft import in_order
from codegen.printer.expressions import CTYPE
from codegen.tiled.functor import Functor, PointPrinter, aligned, braced, fields_of, tensors_of
from codegen.tiled.operand import access_cost, load_cost
from codegen.tiled.points import Piece, Points, loads_of, located, writes_at_points
from codegen.tiled.problem import Problem
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device

RUN = 8  # columns that the epilogue is called for: gemm_epilogue.cuh


def epilogue_pieces(segment: Graph, problem: Problem, run: int = RUN) -> tuple[list[Piece], Points]:
    """The writes behind the product, each as a function of the point of the product that it depends on, for runs of
    `run` columns; and the digits of points that they use. Raises EmitError."""
    return _pieces(_behind(segment, problem), len(segment.inputs), problem.extents, run)


def check_epilogue(segment: Graph, problem: Problem) -> None:
    """Raises EmitError where `epilogue_pieces` does. An epilogue that several segments share is looked at once."""
    behind, position = with_own_inputs(_behind(segment, problem))
    if fault := _fault(behind, position.get(len(segment.inputs)), problem.extents):
        raise EmitError(fault)


@lru_cache(maxsize=1024)
def _fault(behind: Graph, scratch: int | None, extents: tuple[int, int, int]) -> str:
    try:
        _pieces(behind, scratch, extents, RUN)
    except EmitError as error:
        return str(error)
    return ""


def _behind(segment: Graph, problem: Problem) -> Graph:
    return with_scratch(segment, problem.node, [where.stride for where in problem.result], problem.acc)


def _pieces(behind: Graph, scratch: int | None, extents: tuple[int, int, int], run: int) -> tuple[list[Piece], Points]:
    """scratch: position of the input that is the product, None where nothing depends on it."""
    writes, axes = writes_at_points(behind)
    batches, rows, columns = extents
    points, pieces = Points((columns, rows, batches), axes), list[Piece]()
    for write in writes:
        places = loads_of(scratch, write.value) if scratch is not None else []
        if len(places) != 1:
            raise EmitError(
                f"out{write.out} depends on the product at {len(places)} points for each of its elements, expected 1"
            )
        pieces.append(located(write, places[0], points, run))
    return pieces, points


def epilogue_cost(segment: Graph, problem: Problem) -> float:
    """Bytes that the epilogue loads and stores, a short access counting as a whole one. Raises EmitError."""
    pieces, _ = epilogue_pieces(segment, problem)
    given = alignments(segment)
    cost = 0.0
    for piece in pieces:
        write = piece.write
        alignment = max(given[f"out{write.out}"] // write.itemsize, 1)
        found = pattern(write.offset, piece.lane, piece.width, alignment)
        cost += load_cost(segment, piece, len(segment.inputs))
        cost += access_cost(found, write.itemsize) * volume(write.offset.axes) * write.itemsize
    return cost


def epilogue(segment: Graph, problem: Problem, device: Device, name: str = "Epilogue", run: int = RUN) -> Functor:
    """The functor that computes and writes all outputs of a segment from the product, for runs of `run` columns. Raises
    EmitError."""
    pieces, points = epilogue_pieces(segment, problem, run)
    scratch = len(segment.inputs)
    style = aligned(segment, alignments(segment), min(device.vector_bytes, 16))
    everywhere = [p for p in pieces if p.width == run and not p.conditions and not p.repeats]
    fetching = PointPrinter(points, pieces, style, run, scratch)
    fetched = fetching.fetch(everywhere)
    printer = PointPrinter(points, pieces, style, run, scratch, fetched)
    for own in printer.runs(pieces):
        for piece in own:
            with printer.where(piece):
                print_write(printer, piece)
    outputs = tuple(f"out{i}" for i in sorted({p.write.out for p in pieces}))
    members = (*tensors_of(pieces, scratch), *outputs)
    acc = CTYPE[problem.acc.name]
    point = "idx_t batch, idx_t row, idx_t column"
    kept = " ".join(f"{kind} {field};" for field, kind in fetched.values())
    loads = ["  Fetched fetched;", *fetching.lines.text, "  return fetched;"]
    methods = {
        f"VDEV Fetched fetch({point}, int left) const": loads,
        f"VDEV void operator()({point}, const Vec<{acc}, {run}>& product, int left, const Fetched& fetched) const":
            printer.lines.text,
    }  # fmt: skip
    fields = [*fields_of(segment, members), f"struct Fetched {{ {kept} }};" if kept else "struct Fetched {};"]
    text = braced(f"struct {name}", fields, methods)
    accesses = in_order(printer.draft.accesses | fetching.draft.accesses)
    return Functor(name, text, members, accesses, max(printer.names.reach, fetching.names.reach))


def print_write(printer: PointPrinter, piece: Piece) -> None:
    """Prints a piece's value and its store, for all repeats."""
    if not piece.repeats:
        printer.define(piece)
        printer.store(piece)
        return
    loops = [f"LOOP({printer.names.axis(a)}, {a.extent})" for a in piece.repeats]
    with printer.lines.braces(" ".join(loops)):
        printer.define(piece)
        printer.store(piece)
