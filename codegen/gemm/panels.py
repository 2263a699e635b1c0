"""Panels of a product on a CPU: a task has a library multiply a few rows into scratch memory of its own, which stays in
the caches, and runs a loop program over these rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import gcd, prod

from codegen.gemm.call import GemmCall
from codegen.gemm.dims import Digit, Dim
from codegen.gemm.tasks import AxisSplit
from codegen.kernel import EmitError
from codegen.lowering.canonical_inputs import with_own_inputs
from codegen.lowering.index import Affine, Axis
from codegen.lowering.program import Path, Program
from codegen.lowering.stores import pull_outputs
from codegen.lowering.value import Value, cone
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.ops import make

SCRATCH_BYTES = 1 << 21  # of a task: it lies on the stack of the thread, which has 8 MiB as a rule
ALIGN = 16  # elements: rows of a panel start at multiples of it
MOST_TASKS_PER_UNIT = 8


@dataclass(frozen=True)
class Panels:
    """How tasks share the rows of a product in scratch memory. cuts: of its outermost axes, which the loop around the
    rest of the kernel runs over. rows: most rows of a panel."""

    cuts: list[AxisSplit]
    rows: int


def padded(sizes: Sequence[int], order: Sequence[int], align: int = ALIGN) -> tuple[int, ...]:
    """Strides of a tensor with its axes in this order, outermost first, with room behind each run of the last one: runs
    are aligned to so many elements, never joined with each other, and seldom a power of two apart."""
    strides, step = [1] * len(sizes), 1
    for i, d in enumerate(reversed(order)):
        strides[d] = step
        step *= sizes[d]
        if i == 0:
            step = -(-step // align) * align + align
    return tuple(strides)


def digits(node: Node, strides: Sequence[int]) -> list[Digit]:
    """A tensor with these strides by digits of its row-major number."""
    weights = dense_strides(node.sizes)
    return [Digit(w, n, s) for w, n, s in zip(weights, node.sizes, strides, strict=True) if n > 1]


def rows_first(behind: Graph) -> Graph:
    """The graph with the axes of each output in the order in which the product in scratch memory, its last input, has
    them, at unchanged places in memory: loops then run over the product's rows outside.

        out0: relu(permute(%scratch, [1, 0])) strides [8, 1]  ->  out0: permute(that, [1, 0]) strides [1, 8]
    """
    outputs: list[OutputSpec] = []
    for i, o in enumerate(behind.outputs):
        split = [digit for digits in _digits_of(behind, i) for digit in digits]
        node = o.node
        if len(split) > node.rank:
            node = make("reshape", [node], {"shape": shape_of([n for n, _, _ in split])})
        dims = sorted(range(len(split)), key=lambda d: -split[d][2])
        turned = make("permute", [node], {"dims": tuple(dims)})
        outputs.append(OutputSpec(turned, tuple(split[d][1] for d in dims)))
    return Graph(behind.inputs, tuple(outputs))


def steps_of(behind: Graph, output: int) -> list[int]:
    """For each axis of an output, how far a step along it (the outermost of its digits) goes in the scratch memory."""
    return [max(step for _, _, step in digits) for digits in _digits_of(behind, output)]


def _digits_of(behind: Graph, output: int) -> tuple[tuple[tuple[int, int, int], ...], ...]:
    """For each axis of an output its digits, outermost first: extent, stride in the output, and how far a step goes in
    the scratch memory. Where digits are not known, the axis is one, with the farthest of its steps. An output that
    several segments share is looked at once."""
    alone, position = with_own_inputs(Graph(behind.inputs, (behind.outputs[output],)))
    return _digits_alone(alone, position.get(len(behind.inputs) - 1, -1))


@lru_cache(maxsize=1024)
def _digits_alone(behind: Graph, scratch: int) -> tuple[tuple[tuple[int, int, int], ...], ...]:
    (o,) = behind.outputs
    pulled = pull_outputs(behind)
    roots, _, _ = pulled.pull()
    loads = [v.offset for v in cone(roots) if v.op == "load" and v.tensor == scratch]
    found: list[tuple[tuple[int, int, int], ...]] = []
    for d, (size, stride) in enumerate(zip(o.node.sizes, o.strides, strict=True)):
        steps = {a: max((e.coef(a) for e in loads), default=0) for s in pulled.stores for a in s.index[d].axes}
        index = pulled.stores[0].index[d]
        axes = [a for a, _ in index.terms if isinstance(a, Axis)]
        weights = [k for _, k in index.terms]
        dense = dense_strides([a.extent for a in axes])
        if (
            len(pulled.stores) == 1
            and len(axes) > 1
            and tuple(weights) == dense
            and prod(a.extent for a in axes) == size
        ):
            found.append(tuple((a.extent, stride * k, steps[a]) for a, k in zip(axes, weights, strict=True)))
        else:
            found.append(((size, stride, max(steps.values(), default=0)),))
    return tuple(found)


def loads_of(program: Program, tensor: int) -> list[Affine]:
    """Where a program loads input number `tensor`."""
    return [v.offset for v in _values(program) if v.op == "load" and v.tensor == tensor]


def stores_of(program: Program) -> list[Affine]:
    """Where a program stores."""
    return [w.offset for block in program.blocks.values() for w, _ in block.writes]


def row_elements(program: Program, places: Iterable[Affine], iterations: int | None = None) -> int:
    """Elements of scratch memory that belong to one iteration of a program's outermost loop, or of its outermost loops
    joined, of which there are `iterations`. places: where it accesses the memory. Raises EmitError unless all of it
    runs in that one loop, and each iteration has consecutive rows for itself: a mean of a column is a loop over all
    rows before the one that reads it."""
    paths = {tuple(_outermost(key.path, iterations)) for key in program.blocks if key.path}
    if len(paths) != 1:
        raise EmitError(f"what is behind the product runs in {len(paths)} loops, expected one over its rows")
    (loops,) = paths
    if any(r.home.path[: len(loops)] != loops for r in program.reductions.values()):
        raise EmitError("what is behind the product sums over its rows")
    axes = [loop.axis for loop in loops]
    found = set[int]()
    for e in places:
        steps = [e.coef(a) for a in axes]
        if 0 in steps or e.fetched or any(a in e.opaque_axes for a in axes) or not _are_one(axes, steps):
            raise EmitError("what is behind the product does not run over its rows")
        row, reach = steps[-1], sum(k * (a.extent - 1) for k, a in zip(steps, axes, strict=True))
        if e.low < 0 or e.high - reach >= row:
            raise EmitError("what is behind the product reads several of its rows at once")
        found.add(row)
    if len(found) != 1:
        raise EmitError("what is behind the product does not run over its rows")
    return found.pop()


def cut_rows(
    call: GemmCall, iterations: int, row: int, *, rows: int, row_bytes: int, units: int, multiple: int = 1
) -> Panels:
    """Panels of a product. iterations: of the loop behind it, of `row` elements each. rows: most rows of a panel.
    row_bytes: of scratch memory that a row takes. units: threads that share the panels. multiple: which the number of
    panels is to be a multiple of. Raises EmitError."""
    *whole, last = _outer(call, iterations, row)
    batches = prod(d.extent for d in whole)
    rows = min(rows, SCRATCH_BYTES // row_bytes)
    if not rows:
        raise EmitError(f"a row of {row} elements does not fit into {SCRATCH_BYTES} bytes of scratch memory")
    step = multiple // gcd(multiple, batches)
    pieces = -(-last.extent // (rows * step)) * step
    if batches * pieces < MOST_TASKS_PER_UNIT * units:  # as many for every thread
        pieces = next(p for p in range(pieces, pieces + units * step, step) if batches * p % units == 0)
    cut = AxisSplit(last, min(pieces, last.extent))
    return Panels([*(AxisSplit(d, d.extent) for d in whole), cut], cut.longest)


def batches_of(call: GemmCall, iterations: int, row: int) -> int:
    """Matrices of a product, whose rows are never one panel's. Raises EmitError."""
    return prod(d.extent for d in _outer(call, iterations, row)[:-1])


def cut_alike(call: GemmCall, iterations: int, row: int, tasks: int) -> Panels:
    """Panels of another product with as many rows, for tasks that share these evenly. Raises EmitError."""
    *whole, last = _outer(call, iterations, row)
    pieces, rest = divmod(tasks, prod(d.extent for d in whole))
    if rest or not 1 <= pieces <= last.extent:
        raise EmitError(f"{tasks} tasks do not share the rows of both products alike")
    cut = AxisSplit(last, pieces)
    return Panels([*(AxisSplit(d, d.extent) for d in whole), cut], cut.longest)


def _outer(call: GemmCall, iterations: int, row: int) -> list[Dim]:
    """The product's axes outside a row, outermost first. Raises EmitError unless they step as one."""
    outer = sorted((d for d in call.of.outer if d.c >= row), key=lambda d: -d.c)
    nested = all(high.c == low.c * low.extent for high, low in pairwise(outer))
    if not outer or not nested or outer[-1].c != row or prod(d.extent for d in outer) != iterations:
        raise EmitError(f"the loop behind the product runs {iterations} times, over no whole axes of the product")
    return outer


def _outermost(path: Path, iterations: int | None) -> Path:
    """The first of the loops, or as many as have so many iterations together."""
    count = 1
    while iterations is not None and count < len(path) and prod(loop.axis.extent for loop in path[:count]) < iterations:
        count += 1
    return path[:count]


def _are_one(axes: Sequence[Axis], steps: Sequence[int]) -> bool:
    """Whether the axes, the outermost first, step as one."""
    return all(high == low * a.extent for (high, low), a in zip(pairwise(steps), axes[1:], strict=True))


def _values(program: Program) -> list[Value]:
    written = (w.value for block in program.blocks.values() for w, _ in block.writes)
    return cone([*written, *(v for block in program.blocks.values() for v in block.values)])
