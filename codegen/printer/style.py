"""Style: what a schedule decides about the text of a kernel's body."""

from collections.abc import Mapping
from dataclasses import dataclass

from codegen.printer.threads import ONE_THREAD, Threads
from fusion_ir.records import TargetKind


@dataclass(frozen=True)
class Style:
    """What a schedule decides about the text. stream: stores past the caches. grid_least: iterations the outermost loop
    should have (cpu: outer loops are joined until it does; cuda: all that can be joined are). ahead: while a row or a
    tile is gone over, the next one is brought from memory (cpu). fetch_bytes: how far ahead what is read once is
    brought from memory (cpu); 0: not. threads: of a block (cuda). shared_rows: what is kept of a row lies in shared
    memory, not in registers (cuda). alignments: of each input and output pointer, in bytes. register_bytes: of a vector
    register (cpu)."""

    target: TargetKind
    alignments: Mapping[str, int]
    stream: bool = False
    grid_least: int = 1
    ahead: bool = False
    fetch_bytes: int = 0
    access_bytes: int = 64
    threads: Threads = ONE_THREAD
    shared_rows: bool = False
    register_bytes: int = 64
