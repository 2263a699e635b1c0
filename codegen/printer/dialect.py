"""Dialect: how one target spells a body, in four parts that the printer and its helpers ask.

Printer, `Values`, `Arrays` and `Memory` say what a body does; a dialect says who goes through which loops, where arrays
lie, which elements a load or a store moves at once, and how tiles get to memory and back.
"""

from dataclasses import dataclass
from typing import Protocol

from codegen.lowering.access import Pattern
from codegen.lowering.index import Affine, Axis
from codegen.lowering.program import Kept, Key, Path
from codegen.lowering.value import Value
from codegen.lowering.write import Write
from codegen.printer.shared_memory import SharedMemory


class LoopDialect(Protocol):
    """Macros of loops, and of code that one task or thread runs for all."""

    def is_enough(self, path: Path) -> bool:
        """Whether outermost loops have iterations enough for all tasks, so that no more are joined."""
        ...

    def shares_rows(self, path: Path) -> bool:
        """Whether threads of one block share the iterations of an outermost loop."""
        ...

    def around(self, path: Path, depth: int) -> str:
        """The macro of a serial loop. Raises EmitError."""
        ...

    def within(self, axis: Axis | None) -> str:
        """The macro of a loop over a dimension of a kept array; None: over the vectors along its lanes."""
        ...

    def many(self, key: Key) -> str:
        """The ending of the macros of a loop over lanes. Raises EmitError."""
        ...

    def in_step(self, key: Key) -> str:
        """The macro of a loop over lanes that threads go through in step, each vector masked; "" where they need
        not."""
        ...

    def count_left(self, lane: Axis, extent: str) -> str:
        """How many lanes there are of the masked vector: of tiles, only the last one has any."""
        ...

    def once(self) -> str:
        """The head of code that one task runs for all."""
        ...

    def guards(self, key: Key, depth: int) -> list[str]:
        """Macros in front of a write, so that one thread alone writes a value that several threads have."""
        ...


class SharedRows(Protocol):
    """Arrays along lanes that lie elsewhere than in an array of C++."""

    def holds(self, v: Value) -> bool:
        """Whether the array of `v` is one of them."""
        ...

    def declaration(self, v: Value, kept: Kept) -> str: ...

    def element(self, v: Value, kept: Kept) -> str:
        """The present element."""
        ...

    def fill(self, v: Value, kept: Kept, value: str) -> str:
        """The statement that sets the present element."""
        ...


class ArrayDialect(Protocol):
    """Dimensions of kept arrays, and the joining of accumulators. shared_rows: None where all arrays are C++'s."""

    @property
    def shared_rows(self) -> SharedRows | None: ...

    def index(self, a: Axis, v: Value) -> str:
        """The present place along a dimension of an array of `v`."""
        ...

    def extent(self, a: Axis, v: Value) -> str:
        """The extent of a dimension of an array of `v`."""
        ...

    def joined(self, v: Value, accumulator: str) -> str:
        """An accumulator with all its parts combined: its lanes, and those that other threads have. Raises
        EmitError."""
        ...

    def scanned(self, v: Value, f: str, carry: str, operand: str) -> str:
        """One more vector of a scan along lanes: of the lanes before it, `carry` knows. f: the combining lambda. Raises
        EmitError."""
        ...

    def is_joined_in_array(self, v: Value) -> bool:
        """Whether threads have parts of the accumulators in an array, of which each is combined in its place."""
        ...


class AccessDialect(Protocol):
    """Loads and stores of tensors. paired: lane axes along which lanes of bf16 come apart (`bf16_pairs`). narrows:
    whether arithmetic of two lanes of bf16 is rounded in one instruction."""

    @property
    def paired(self) -> frozenset[Axis]: ...

    @property
    def narrows(self) -> bool: ...

    def pattern(self, tensor: str, e: Affine, lane: Axis | None, width: int, itemsize: int) -> Pattern:
        """How an offset in a tensor runs along a lane axis, from how its pointer is aligned."""
        ...

    def masked(self, found: Pattern, lane: Axis) -> Pattern:
        """The pattern in a masked vector, of which only the first lanes are there."""
        ...

    def together(self, found: Pattern) -> str:
        """The template arguments of a masked access that say how many elements are moved at once."""
        ...

    def widths(
        self, access: Value | Write, found: Pattern, lane: Axis | None, width: int, itemsize: int, *, masked: bool
    ) -> set[int]:
        """How many elements of a tensor the instructions of an access have at once."""
        ...

    def address(self, tensor: str, offset: str) -> str:
        """The pointer to an element."""
        ...

    def load_lanes(self, v: Value, found: Pattern, lane: Axis, width: int, count: str | None) -> str:
        """Text of a load with an address for each lane, or for each few. count: lanes of a masked vector, or None."""
        ...


class TileDialect(Protocol):
    """The arrays by way of which a kernel reads and writes across its lanes."""

    def begin(self, path: Path) -> None:
        """Declares the tiles that live at `path` and fills those that are read."""
        ...

    def fetch(self, path: Path) -> None:
        """In the loop along a tile that was read: brings a part of the one that is read next from memory."""
        ...

    def end(self, path: Path, *, stream: bool) -> None:
        """Writes the tiles that live at `path` to the tensors that they are parts of. stream: past the caches."""
        ...

    def load(self, v: Value, key: Key, width: int, count: str | None) -> str | None:
        """Text of a load of what is in a tile, or was read ahead of tiles; None for any other load."""
        ...

    def store(self, w: Write, key: Key, value: str, width: int, count: str | None) -> str | None:
        """The statement that puts a value into a tile; None for a store of another kind."""
        ...


@dataclass(frozen=True)
class Dialect:
    """How one target spells a body. shared: the block's shared memory; None where there is no such memory."""

    loops: LoopDialect
    arrays: ArrayDialect
    accesses: AccessDialect
    tiles: TileDialect
    shared: SharedMemory | None = None
