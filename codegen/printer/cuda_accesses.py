"""Loads and stores of a CUDA thread, as wide as addresses are aligned."""

from math import gcd

from codegen.hardware.architectures import ACCESS_BYTES
from codegen.lowering.access import Pattern, in_groups, pattern
from codegen.lowering.index import Affine, Axis
from codegen.lowering.value import Value
from codegen.lowering.write import Write
from codegen.printer.draft import Draft
from codegen.printer.memory import single_lanes, tensor_name


class ThreadAccesses:
    """Loads and stores of one thread, as `AccessDialect` says."""

    paired = frozenset[Axis]()
    narrows = True

    def __init__(self, draft: Draft) -> None:
        self.draft = draft

    def pattern(self, tensor: str, e: Affine, lane: Axis | None, width: int, itemsize: int) -> Pattern:
        alignment = self.draft.style.alignments[tensor]
        found = pattern(e, lane, width, max(alignment // itemsize, 1))
        if found.kind != "lanes" or lane is None:
            return found
        return in_groups(e, lane, width, max(min(alignment, ACCESS_BYTES) // itemsize, 1))

    def masked(self, found: Pattern, lane: Axis) -> Pattern:
        """The pattern in a masked vector: as many elements at once as divide its width, the axis and, where the last
        tile is cut off, the whole extent. The number of lanes left is a multiple of that."""
        last = self.draft.program.last_tile(lane)
        left = gcd(lane.extent, last[1] if last else 0)
        if found.kind == "lanes":
            return Pattern("lanes", gcd(found.width, left), gcd(found.step, left))
        return Pattern("vector", gcd(found.width, left)) if found.kind == "vector" else single_lanes(found)

    def together(self, found: Pattern) -> str:
        return f"{found.width}, {found.width}"

    def widths(
        self, access: Value | Write, found: Pattern, lane: Axis | None, width: int, itemsize: int, *, masked: bool
    ) -> set[int]:
        return {self.draft.most(found, itemsize)}

    def address(self, tensor: str, offset: str) -> str:
        """The pointer to an element. Around tiles offsets are sums of 32 bits, and made 64 bits wide once."""
        return f"{tensor} + ({offset})" if self.draft.program.across else f"{tensor} + {offset}"

    def load_lanes(self, v: Value, found: Pattern, lane: Axis, width: int, count: str | None) -> str:
        tensor, each_lane = tensor_name(v), self.draft.names.each_lane
        if found.width * found.step > 1:
            at = each_lane(lane, v.offset, f"{tensor} + (", ")")
            return f"load_groups<{width}, {found.width}, {found.step}>({at}, {count or width})"
        return f"load_lanes<{width}>({each_lane(lane, v.offset, f'read({tensor} + ', ')')}, {count or width})"
