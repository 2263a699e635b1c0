"""Lanes that may come apart on a CPU: the even elements of bf16 in one register, the odd ones in the next.

A shift and an `and` make floats of them so, see vec_pairs_cpu.h. All that varies along a lane axis then has this order.
Sums do not mind the order; values that depend on a lane's number do, and so do tensors of other dtypes than bf16.
"""

from codegen.lowering.access import pattern
from codegen.lowering.index import Axis
from codegen.lowering.program import Program
from codegen.lowering.value import Value
from fusion_ir.dtype import bf16, f32


def paired_lanes(program: Program) -> frozenset[Axis]:
    """The lane axes of a program along which lanes may come apart, and along which bf16 is read."""
    return frozenset(lane for lane in program.widths if _comes_apart(program, lane))


def _comes_apart(program: Program, lane: Axis) -> bool:
    tile = program.tiles.get(lane)
    if (tile[1] if tile else lane.extent) % program.widths[lane]:
        return False  # a masked vector counts its lanes
    blocks = [block for key, block in program.blocks.items() if key.lane is lane]
    values = [v for b in blocks for v in (*(v for v in b.values if lane in v.deps), *b.updates)]
    reads = [v for v in values if v.op == "load"]
    numbers = [v for v in values if v.op == "index"]
    writes = [w for b in blocks for w, _ in b.writes]
    across = {access for (_, access), t in program.across.items() if lane in (t.lane, t.along)}
    return (
        bool(reads)
        and not across
        and all(_is_lane_wise(v) and (v.dtype != bf16 or v not in program.kept) for v in values)
        and all(a.dtype == bf16 for a in reads)
        and all(w.value.dtype == bf16 for w in writes)
        and all(pattern(a.offset, lane, 1, 1).kind == "vector" for a in (*reads, *numbers, *writes))
        and not any(isinstance(v, Value) and lane in v.deps for a in (*reads, *writes) for v in a.offset.fetched)
    )


def _is_lane_wise(v: Value) -> bool:
    """Whether each lane of v is computed by itself, and bf16 in it is only read, rounded to or made a float."""
    if v.op == "cast":
        return bf16 not in (v.dtype, v.args[0].dtype) or f32 in (v.dtype, v.args[0].dtype)
    if v.op in ("load", "index"):
        return True
    return v.op not in ("uniform", "scan", "argreduce") and bf16 not in (v.dtype, *(a.dtype for a in v.args))
