"""Outputs that a kernel may write over the input that they donate, by where its program reads and writes both."""

from codegen.lowering.program import Program
from fusion_ir.core.graph import Graph


def in_place(segment: Graph, program: Program) -> tuple[int, ...]:
    """The outputs, by number, that may lie in their donor's memory: all of its elements are loaded in the block that
    writes the output, there at the same offset, and blocks load everything before they write anything.

        out0[8 r + c] = in0[8 r + c] + in1[c]    in place of in0
        out0[8 r + c] = in0[8 c + r]             not: another iteration reads what this one overwrites
    """
    listed = {i for lists in program.lists for i in lists.reads}  # while other tasks write already
    return tuple(
        i
        for i, output in enumerate(segment.outputs)
        if output.donates is not None and output.donates not in listed and _fits(program, i, output.donates)
    )


def _fits(program: Program, output: int, donor: int) -> bool:
    blocks = program.blocks.items()
    writes = [(key, w, repeats) for key, block in blocks for w, repeats in block.writes if w.out == output]
    loads = [(key, v) for key, block in blocks for v in block.values if v.op == "load" and v.tensor == donor]
    if len(writes) != 1:
        return False
    ((key, write, repeats),) = writes
    if repeats or (key, write) in program.across:
        return False
    return all(k == key and v.offset == write.offset and (k, v) not in program.across for k, v in loads)
