"""Text of loads and stores of tensors, and a record of how many elements their machine code moves at once."""

from codegen.lowering.access import Pattern
from codegen.lowering.index import Axis
from codegen.lowering.program import Key
from codegen.lowering.value import Value
from codegen.lowering.write import Write
from codegen.printer.arrays import Arrays
from codegen.printer.dialect import AccessDialect, Dialect
from codegen.printer.draft import Draft


class Memory:
    """Prints a body's loads and stores of tensors, and records them in the draft's `accesses`."""

    def __init__(self, draft: Draft, dialect: Dialect, arrays: Arrays) -> None:
        self.draft, self.accesses, self.tiles, self.arrays = draft, dialect.accesses, dialect.tiles, arrays

    def load(self, v: Value, key: Key, lane: Axis | None, width: int, count: str | None) -> str:
        if (there := self.tiles.load(v, key, width, count)) is not None:
            return there
        p, at = pointer(self.draft, self.accesses, v, lane, width, v.dtype.bytes, masked=count is not None)
        if p.kind == "splat":
            return f"load<1, 1>({at})"
        if p.kind == "vector" and lane in self.accesses.paired:
            return f"load_pairs<{width}, {p.width}>({at})"
        if p.kind == "vector":
            return (
                f"load<{width}, {p.width}>({at})"
                if count is None
                else f"load_masked<{width}, {self.accesses.together(p)}>({at}, {count})"
            )
        if p.kind == "strided":
            return f"load_strided<{width}>({at}, {p.step}, {count or width})"
        if p.kind == "tile":
            return f"load_tile<{width}, {p.step}, {p.width}>({at})"
        if p.kind == "repeat":
            return f"load_repeat<{width}, {p.step}, {p.width}>({at})"
        assert lane is not None
        return self.accesses.load_lanes(v, p, lane, width, count)

    def store(self, w: Write, key: Key, count: str | None) -> str:
        width = self.draft.width(key.lane)
        value = self.arrays.operand(w.value, key, width)
        if (into_tile := self.tiles.store(w, key, value, width, count)) is not None:
            return into_tile
        p, at = pointer(self.draft, self.accesses, w, key.lane, width, w.itemsize, masked=count is not None)
        if p.kind == "splat":
            return f"store<1, 1>({at}, {value});"
        if p.kind == "vector":
            if count is not None:
                return f"store_masked<{width}, {self.accesses.together(p)}>({at}, {value}, {count});"
            return f"store{'_stream' if self.draft.style.streams(w.out) else ''}<{width}, {p.width}>({at}, {value});"
        assert p.kind == "strided", "outputs are indexed by plain axes"
        return f"store_strided<{width}>({at}, {p.step}, {value}, {count or width});"


def pointer(
    draft: Draft, accesses: AccessDialect, access: Value | Write, lane: Axis | None, width: int, itemsize: int,
    *, masked: bool = False,
) -> tuple[Pattern, str]:  # fmt: skip
    """How a load or a write moves a vector, and its address. masked: only the first lanes of the vector."""
    tensor = tensor_name(access)
    found = accesses.pattern(tensor, access.offset, lane, width, itemsize)
    if masked and lane is not None:
        found = accesses.masked(found, lane)
    draft.note(tensor, found, accesses.widths(access, found, lane, width, itemsize, masked=masked))
    return found, accesses.address(tensor, draft.names.expr(access.offset))


def tensor_name(access: Value | Write) -> str:
    """The parameter of the tensor that is read or written."""
    return f"in{access.tensor}" if isinstance(access, Value) else f"out{access.out}"


def single_lanes(found: Pattern) -> Pattern:
    """The pattern in a masked vector: `repeat` becomes single lanes."""
    return Pattern("lanes", 1) if found.kind == "repeat" else found
