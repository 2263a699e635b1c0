"""How long a kernel's code becomes: what is computed in its blocks, as often as it is written out, in registers.

Compilers need long for it: 32 functions of f32, tanh and the like, were 16,641 instructions with 16 lanes, 39,057 with
32, and 168,557 with 128, for which g++ took 23 times as long as for 16.
"""

from collections.abc import Iterable, Iterator

from codegen.kernel import EmitError
from codegen.lowering.index import volume
from codegen.lowering.program import UNCOUNTED, Program
from fusion_ir.ops import OPS
from fusion_ir.records import Device

# In f32 additions, of one register (cpu) or of one element (cuda): each takes about 100 bytes of a GPU's code.
MOST_CODE_CPU, MOST_CODE_CUDA = 1024.0, 2048.0
UNROLLED = 4  # vectors of a thread in a loop over lanes (cuda)


def first_short(programs: Iterable[Program], device: Device) -> Program:
    """The first of these programs that does not become too long, else the shortest. Later ones are lowered when they
    are asked for. Raises EmitError where the first one cannot be lowered."""
    most = MOST_CODE_CPU if device.target == "cpu" else MOST_CODE_CUDA
    found: list[tuple[float, Program]] = []
    try:
        for program in programs:
            found.append((code_length(program, device), program))
            if found[-1][0] <= most:
                return program
    except EmitError:
        if not found:
            raise
    return min(found, key=lambda f: f[0])[1]


def halved(most: int, least: int = 1) -> Iterator[int]:
    """most, most / 2, ... while that is no less than `least`; `most` at any rate."""
    yield most
    while most // 2 >= least:
        most //= 2
        yield most


def code_length(program: Program, device: Device) -> float:
    """In f32 additions of one register (cpu) or of one element (cuda)."""
    together = max(device.vector_bytes // 4, 4) if device.target == "cpu" else 1
    total = 0.0
    for key, block in program.blocks.items():
        if key.lane is None:
            continue
        times = max(program.widths[key.lane] // together, 1)
        if device.target != "cpu":
            times *= min(program.vectors(key.lane), UNROLLED)
        for v in (*block.values, *block.updates):
            if v.op not in UNCOUNTED:
                points = volume(program.unrolled & v.deps.union(v.bound) - set(key.dims))
                total += times * points * (OPS[v.op].cost if v.op in OPS else 1.0)
    return total
