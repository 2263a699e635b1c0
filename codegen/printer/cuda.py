"""CUDA's dialect: one thread's share of a body, in a block with shared memory."""

from codegen.printer.cuda_accesses import ThreadAccesses
from codegen.printer.cuda_arrays import ThreadArrays
from codegen.printer.cuda_loops import ThreadLoops
from codegen.printer.cuda_tiles import SharedTiles
from codegen.printer.dialect import Dialect
from codegen.printer.draft import Draft
from codegen.printer.shared_memory import SharedMemory


def cuda_dialect(draft: Draft) -> Dialect:
    """Raises EmitError where threads cannot share the program as the style says."""
    loops, accesses, shared = ThreadLoops(draft), ThreadAccesses(draft), SharedMemory()
    arrays, tiles = ThreadArrays(draft, loops, shared), SharedTiles(draft, loops, accesses, shared)
    return Dialect(loops, arrays, accesses, tiles, shared)
