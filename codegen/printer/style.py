"""Style: a schedule's decisions about the text of a kernel's body."""

from collections.abc import Mapping
from dataclasses import dataclass

from codegen.printer.threads import ONE_THREAD, Threads
from fusion_ir.records import TargetKind


@dataclass(frozen=True)
class Style:
    """A schedule's decisions about the text. stream: stores go past the caches, but for those of outputs `in_place`,
    whose lines are in them, since what is overwritten was just read. grid_least: iterations the outermost
    loop should have (cpu: outer loops are joined until it does; cuda: all loops that can be joined are). ahead: while a
    row or a tile is gone over, the next one is brought from memory (cpu). fetch_bytes: how far ahead of its load memory
    that is read once is brought (cpu); 0: not. threads: threads of a block (cuda). shared_rows: kept values of a row
    lie in shared memory, not in registers (cuda). alignments: bytes that each input and output pointer is aligned to.
    access_bytes: most that one access has where its address must be aligned. register_bytes: size of a vector register
    (cpu)."""

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
    in_place: frozenset[int] = frozenset()

    def streams(self, output: int) -> bool:
        """Whether stores to an output go past the caches."""
        return self.stream and output not in self.in_place
