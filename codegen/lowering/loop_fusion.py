"""Loop fusion: updates of sums in loops of their own move into loops over equal axes that other sums have already.

loop i2: { for i1: lanes: y[i1] += f(x);  loop i1: lanes: z += g(x) }   ->   loop i2: { loop i1: lanes: y[i1] +=, z += }
"""

from dataclasses import replace

from codegen.lowering.program import Key, Program


def join_loops(program: Program) -> None:
    """Moves updates into blocks that go over the same points at the same time, so that both read memory once."""
    for key in [k for k in program.blocks if k.dims]:
        other = _same_points(program, key)
        if other is None:
            continue
        block = program.blocks.pop(key)
        program.blocks[other].values |= block.values
        program.blocks[other].updates += block.updates
        for v in block.updates:
            program.reductions[v] = replace(program.reductions[v], site=other)


def _same_points(program: Program, key: Key) -> Key | None:
    """The key of a block to which everything in block `key` can move; None if there is none."""
    block, depth = program.blocks[key], len(key.path)
    if block.writes or not block.updates or any(kept.key == key for kept in program.kept.values()):
        return None
    if program.scans(key.path) or any(program.reductions[v].is_local for v in block.updates):
        return None
    for other in program.blocks:
        inner = other.path[depth:]
        same = other.path[:depth] == key.path and tuple(loop.axis for loop in inner) == key.dims
        if same and not other.dims and other.lane is key.lane and inner[0].phase == key.phase:
            return other
    return None
