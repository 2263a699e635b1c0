"""Views of a %kernel_math dump: what their text leaves out, found in the axes of operand and result.

Every function takes a `MathCall` and gives its node, which the reader holds against the result as it is written. What
the axes do not settle is refused with both readings.
"""

from collections.abc import Sequence

from fusion_ir import building as build
from fusion_ir.core.node import Node
from fusion_ir.errors import FormatError
from fusion_ir.formats.kernel_math.calls import MathCall, Padding, Tensor, Word
from fusion_ir.formats.kernel_math.tensors import Axis


def set_(call: MathCall) -> Node | tuple[Node, Padding]:
    """A copy; the axes keep their order. What a pad made stays so."""
    x = _operand(call)
    return x.node if x.padding is None else (x.node, x.padding)


def permute(call: MathCall) -> Node:
    """Set.Permute: the order of the axes, from their numbers.

    nvFuser numbers the axes of a result in the order of the operand and writes them permuted:

        T6[bS18, iS20, iS19, iS21] = Set.Permute( T5[bS12, iS13, iS16, iS17] )      dims (0, 2, 1, 3)

    Numbers that are the operand's own say it directly. A mixture says nothing; then extents decide, if they can.
    """
    x = _operand(call)
    before, after = x.mention.kept, call.result.kept
    if len(before) != len(after):
        raise call.error(f"Set.Permute of rank {len(before)} gives rank {len(after)}")
    own = [axis.number for axis in before]
    numbers = [axis.number for axis in after]
    if set(numbers) == set(own):
        return build.permute(x.node, [own.index(n) for n in numbers])
    if not set(numbers) & set(own):
        return build.permute(x.node, [sorted(numbers).index(n) for n in numbers])
    return build.permute(x.node, _by_extents(call, before, after))


def _by_extents(call: MathCall, before: Sequence[Axis], after: Sequence[Axis]) -> list[int]:
    """The one order in which the extents fit; axes of extent 1 may stand in any."""
    dims: list[int] = []
    for axis in after:
        fits = [i for i, b in enumerate(before) if i not in dims and b.extent == axis.extent]
        if not fits:
            raise call.error(f"no axis of the operand has extent {axis.extent}, which {axis} has")
        if len(fits) > 1 and axis.extent != 1:
            a, b = before[fits[0]], before[fits[1]]
            mixed = "axes old and new do not tell the order"
            raise call.error(f"ambiguous: {axis} can be {a} or {b} of the operand, as {mixed}")
        dims.append(fits[0])
    return dims


def reshape(call: MathCall) -> Node:
    """The sizes are those of the result as it is written."""
    return build.reshape(_operand(call).node, call.result.sizes)


def broadcast(call: MathCall) -> Node:
    """New axes of extent 1, where the flags are set; without flags, where the operand's axes leave room.

    T16[bS57{1}, bS58{1}, iS59{4096}] = broadcast( T4[bS10{1}, iS11{4096}] )     the operand's axes are 0 and 2

    Which of several axes of extent 1 is the new one makes no difference to any value; the first counts as the old one.
    """
    x = _operand(call)
    after = call.result.kept
    new = _missing(call, after, x.mention.kept, "result", "operand")
    for axis in new:
        if after[axis].extent != 1 or after[axis].kind != "b":
            raise call.error(f"new axis {after[axis]} is no broadcast of extent 1")
    return build.unsqueeze(x.node, new) if new else x.node


def squeeze(call: MathCall) -> Node:
    """The operand without some broadcast axes: those flagged, or those that the result lacks. Of an expanded axis the
    first element is taken, as all are equal."""
    x = _operand(call)
    before = x.mention.kept
    dropped = _missing(call, before, call.result.kept, "operand", "result")
    for axis in dropped:
        if before[axis].kind != "b" and before[axis].extent != 1:
            raise call.error(f"dropped axis {before[axis]} is no broadcast")
    stop = [min(n, 1) if axis in dropped else n for axis, n in enumerate(x.node.sizes)]
    return build.squeeze(build.slice_(x.node, [0] * x.node.rank, stop), dropped) if dropped else x.node


def _missing(call: MathCall, longer: Sequence[Axis], shorter: Sequence[Axis], where: str, other: str) -> list[int]:
    """The positions in `longer` of the axes that `shorter` lacks: those flagged, or else those that are left where the
    rest is matched in order as early as it can be."""
    flags = call.flags("flags")
    if flags is not None:
        if len(flags) != len(longer):
            raise call.error(f"{call.name} has {len(flags)} flags for the {len(longer)} axes of its {where}")
        return [position for position, flag in enumerate(flags) if flag]
    missing: list[int] = []
    rest = list(shorter)
    for position, axis in enumerate(longer):
        if rest and rest[0].extent == axis.extent and (axis.extent == 1 or rest[0].kind == axis.kind):
            rest.pop(0)
        else:
            missing.append(position)
    if rest:
        raise call.error(f"axis {rest[0]} of the {other} is not found in the {where}")
    return missing


def expand(call: MathCall) -> Node:
    """Broadcast axes repeated to the extents of the result as it is written."""
    x = _operand(call, others=1)
    before, after = x.mention.kept, call.result.kept
    if len(call.positional) == 2 and call.integers(1) != call.result.sizes:
        raise call.error(f"expand to {list(call.integers(1))}, but {list(call.result.sizes)} is written")
    if len(before) != len(after):
        raise call.error(f"expand of rank {len(before)} gives rank {len(after)}")
    return build.broadcast_to(x.node, call.result.sizes)


def pad(call: MathCall) -> tuple[Node, Padding]:
    """Widths in pairs, in the order of the axes. What is filled in is not printed: 0, unless stated beside it."""
    x = _operand(call, others=1)
    widths = call.integers(1)
    if len(widths) != 2 * x.node.rank:
        raise call.error(f"pad has {len(widths)} widths, expected {2 * x.node.rank} for rank {x.node.rank}")
    low, high = widths[::2], widths[1::2]
    value = call.stated.get(call.result.name, 0)
    return build.pad(x.node, low, high, value), Padding(call.result.name, x.node, low, high)


def cat(call: MathCall) -> Node:
    """One after the other. nvFuser pads every operand to the extent of the result first; here that is undone.

    Raises FormatError where an operand was not made by a pad, or the pads do not follow each other without gaps.
    """
    operands = [call.tensor(i) for i in range(len(call.positional) - 1)]
    axis = call.number(len(call.positional) - 1)
    if not operands or isinstance(axis, bool) or not isinstance(axis, int) or not 0 <= axis < len(call.result.kept):
        raise call.error(f"cat takes tensors and an axis below {len(call.result.kept)}")
    parts: list[Node] = []
    at = 0
    for argument, operand in zip(call.positional, operands, strict=False):
        name, padding = operand.mention.name, operand.padding
        if operand.mention.sizes != call.result.sizes:
            found, expected = list(operand.mention.sizes), list(call.result.sizes)
            raise FormatError(argument.place, f"cat: {name} has shape {found}, expected it padded to {expected}")
        if padding is None:
            what = "which part of the result it gives is not in the text"
            raise FormatError(argument.place, f"cat: {name} is made by no pad, so {what}")
        size = padding.source.sizes[axis]
        rest = call.result.sizes[axis] - at - size
        if (padding.low[axis], padding.high[axis]) != (at, rest):
            found = f"{padding.low[axis]} before and {padding.high[axis]} behind"
            raise FormatError(argument.place, f"cat: {name} is padded by {found}, expected {at} and {rest}")
        if any(w for low_high in (padding.low, padding.high) for a, w in enumerate(low_high) if a != axis):
            raise FormatError(argument.place, f"cat: {name} is padded along another axis than {axis}")
        parts.append(padding.source)
        at += size
    return build.cat(parts, axis)


def slice_(call: MathCall) -> Node:
    """{ {start, stop, step} ... }, one row for every axis."""
    x = _operand(call, others=1)
    rows = call.rows(1)
    if len(rows) != x.node.rank or any(len(row) != 3 for row in rows):
        raise call.error(f"slice takes {x.node.rank} rows of start, stop and step")
    for axis, (start, stop, _) in enumerate(rows):
        if not 0 <= start <= stop <= x.node.sizes[axis]:
            raise call.error(f"slice {start}:{stop} of axis {axis}, which has extent {x.node.sizes[axis]}")
    return build.slice_(x.node, [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows])


def _operand(call: MathCall, others: int = 0) -> Tensor:
    """The first operand. `others`: how many more there may be at most. Set's cache_op says nothing about values."""
    call.count(1, 1 + others)
    call.keyword("cache_op", Word, "a word")
    return call.tensor(0)
