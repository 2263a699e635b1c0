"""Length of a kernel's code: the operations of its blocks, as often as they are written out, in registers.

Compilers need long for long code: 32 functions of f32, tanh and the like, were 16,641 instructions with 16 lanes,
39,057 with 32, and 168,557 with 128, for which g++ took 23 times as long as for 16. A schedule whose code would be
longer than `most_code` gets narrower vectors, and fewer rows side by side; where the code is longer than LONGEST times
that with all of them, there is no kernel. A segment whose ops are more code for one element than `too_much` allows is
refused before it is lowered.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache

from codegen.kernel import EmitError, Reject
from codegen.lowering.index import volume
from codegen.lowering.program import UNCOUNTED, Program
from codegen.lowering.value import Value
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType
from fusion_ir.ops import OPS, OpKind, kind_of
from fusion_ir.ops.contract import ORDERED_PRODUCTS, products
from fusion_ir.records import Device

# In f32 additions, of one register (cpu) or of one element (cuda): each takes about 100 bytes of a GPU's code.
MOST_CODE_CPU, MOST_CODE_CUDA = 1024.0, 2048.0
LONGEST = 2.0  # times as long, at most, where nothing makes the code of several blocks shorter
MOST_OF_ELEMENT = 1024.0
UNROLLED = 4  # vectors of a thread in a loop over lanes (cuda)
# Whole numbers are divided lane by lane: the instructions of 16 lanes of a CPU are those of so many additions.
DIVISIONS = ("div", "floordiv", "fmod", "remainder")
DIVISION = 40.0
# Functions that are longer than they take, by how much: those that have several ways, one of which is taken as a rule.
SEVERAL_WAYS = {"sin": 2.0, "cos": 2.0, "pow": 2.5}


def first_short(programs: Iterable[Program], device: Device) -> Program:
    """The first of these programs that does not become too long, else the shortest. Later ones are lowered when they
    are asked for. Raises EmitError where the first one cannot be lowered, and where the shortest one is too long."""
    most = most_code(device)
    found: list[tuple[float, Program]] = []
    try:
        for program in programs:
            found.append((code_length(program, device), program))
            if found[-1][0] <= most:
                return program
    except EmitError:
        if not found:
            raise
    length, shortest = min(found, key=lambda f: f[0])
    if length > LONGEST * most:
        raise EmitError(f"its code would be as long as {length:.0f} additions (at most {LONGEST * most:.0f})")
    return shortest


def most_code(device: Device) -> float:
    """How long the code of a loop program may be, as `code_length` counts."""
    return MOST_CODE_CPU if device.target == "cpu" else MOST_CODE_CUDA


def least_lanes(segment: Graph, device: Device) -> int:
    """Elements of the narrowest vector worth having on a CPU: one register of the segment's widest elements."""
    return max(device.vector_bytes // max([4, *(n.dtype.bytes for n in segment.nodes)]), 4)


def halved(most: int, least: int = 1) -> Iterator[int]:
    """most, most / 2, ... while that is no less than `least`; `most` at any rate."""
    yield most
    while most // 2 >= least:
        most //= 2
        yield most


@lru_cache(maxsize=256)
def too_much(segment: Graph, most: float = MOST_OF_ELEMENT) -> Reject | None:
    """Why no schedule makes the code of a segment short: for one element its ops, as often as they are written out, are
    more code than `most` f32 additions. None where they are not."""
    counted = [n for n in segment.nodes if n.op in OPS and OPS[n.op].kind is not OpKind.VIEW]
    length = sum(op_length(n.op, n.dtype) for n in counted)
    if length > most:
        return Reject(f"{len(segment.nodes)} nodes, as much code as {length:.0f} additions (at most {most:.0f})")
    times = _times_written(segment)
    length = sum(times.get(n, 1) * op_length(n.op, n.dtype) for n in counted)
    if length > most:
        how = f"as much code as {length:.0f} additions (at most {most:.0f})"
        return Reject(f"few products, written out in one another: {how}")
    return None


def _times_written(segment: Graph) -> Mapping[Node, int]:
    """How often the ops of a segment are written out for one element, at most: what contractions of few products read
    is written for each of them, and again where such a one reads that. No node has more elements than that."""
    times: dict[Node, int] = {}
    for node in reversed(segment.nodes):
        own = times.get(node, 1)
        if kind_of(node) is OpKind.CONTRACT and 0 < products(node) <= ORDERED_PRODUCTS:
            own = times[node] = own * products(node)
        for operand in node.args:
            times[operand] = max(times.get(operand, 1), min(own, operand.elements))
    return times


@cache
def op_length(op: str, dtype: DType) -> float:
    """Code length of an op on one register or element, in f32 additions."""
    if op in DIVISIONS and not dtype.is_float:
        return DIVISION
    return (OPS[op].cost if op in OPS else 1.0) * SEVERAL_WAYS.get(op, 1.0)


def code_length(program: Program, device: Device) -> float:
    """Length of a program's code in f32 additions of one register (cpu) or of one element (cuda). The masked rest
    behind whole vectors, which is as long as their code, is not counted. Scalars are: of scores of 16 x 16 tokens that
    are shifted by windows they were 5,668, which g++ took more than a minute for."""
    total = 0.0
    for key, block in program.blocks.items():
        width = program.widths[key.lane] if key.lane is not None else 1
        times = 1 if device.target == "cpu" or key.lane is None else min(program.vectors(key.lane), UNROLLED)
        for v in (*block.values, *block.updates):
            if v.op not in UNCOUNTED:
                points = volume(program.unrolled & v.ranges - set(key.dims)) if program.unrolled else 1
                total += times * _registers(width, v, device) * points * op_length(v.op, v.dtype)
    return total


def _registers(width: int, v: Value, device: Device) -> int:
    """Registers (cpu) or elements (cuda) of a vector of `width` lanes; narrow elements are computed with 4 bytes."""
    if device.target != "cpu":
        return width
    wide = max(4, v.dtype.bytes, *(a.dtype.bytes for a in v.args)) if v.args else max(4, v.dtype.bytes)
    return max(width * wide // max(device.vector_bytes, 16), 1)
