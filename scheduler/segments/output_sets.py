"""Sets of tensors that a segment of given atoms may write: everything that others may read, or less.

    {a, b} writes a and b     a is read by others, too
    {a, b} writes b           whoever else needs a computes it again, or reads it from another segment

Computing again pays for what is light: views, and arithmetic on operands that take little more to read than the result.
An exponential that is summed and then divided by its sum is written by no segment at all:

    {exp, sum} writes sum, {exp, div} writes div, which reads the sum
"""

from collections.abc import Iterator

from scheduler.bitset import bits
from scheduler.segments.atoms import Atoms
from scheduler.segments.segment_mask import SegmentMask

DEEPEST = 3  # tensors computed again, one behind the other


def pieces_of(atoms: Atoms, members: int) -> tuple[SegmentMask, ...]:
    """Segments of these atoms that leave nothing for another one to compute again. The first writes every tensor that
    other atoms may read; a second, where alternatives leave some of those readers without a use, writes what the
    remaining ones read. () where two members produce one tensor."""
    tensors = atoms.hypergraph.made(members)
    if tensors.bit_count() < members.bit_count():  # two producers of one tensor
        return ()
    whole = SegmentMask(members, atoms.writes_of(members))
    if len(atoms) == atoms.given:
        return (whole,)
    idle = _idle(atoms, members, tensors)
    needed = sum(
        1 << t
        for t in bits(whole.writes)
        if atoms.outputs >> t & 1 or not atoms.succs[t] & members or atoms.succs[t] & ~members & atoms.givens & ~idle
    )
    return (whole,) if needed == whole.writes else (whole, SegmentMask(members, needed))


def _idle(atoms: Atoms, members: int, tensors: int) -> int:
    """Atoms of the graph as given whose results nobody needs where these members produce these tensors."""
    idle = 0
    stack = [*bits(tensors & ~members)]  # the tensors' own producers
    while stack:
        a = stack.pop()
        if idle >> a & 1:
            continue
        idle |= 1 << a
        for t in bits(atoms.preds[a] & atoms.givens & ~members):
            readers = atoms.succs[t] & atoms.givens
            if not readers & ~idle and not atoms.outputs >> t & 1:
                stack.append(t)
    return idle


def computing_again(atoms: Atoms, piece: SegmentMask) -> Iterator[SegmentMask]:
    """The segment with light tensors computed in it that it reads so far, though others read them too or they have
    another producer: one tensor more in each segment, at most `DEEPEST`."""
    for _ in range(DEEPEST):
        better = max(_with_one_more(atoms, piece), default=None)
        if better is None:
            return
        _, piece = better
        yield piece


def _with_one_more(atoms: Atoms, piece: SegmentMask) -> Iterator[tuple[int, SegmentMask]]:
    """Segments with one light tensor more computed in them, each behind the bytes saved if all readers of that tensor
    computed it: it is written no more, and each reader reads its operands instead."""
    reads = atoms.reads_of(piece.members)
    for t in bits(reads & atoms.all & ~atoms.read_once):  # of others, the reader computes it alone, as in others
        readers = atoms.succs[t].bit_count()
        for a in atoms.hypergraph.producers[t]:
            if not is_light(atoms, a):
                continue
            more_bytes = sum(atoms.tensors[r].bytes for r in bits(atoms.reads[a] & ~reads))
            saved_bytes = atoms.nodes[t].bytes * (1 + readers) - more_bytes * readers
            larger = SegmentMask(piece.members | 1 << a, piece.writes)
            if saved_bytes >= 0 and atoms.is_possible(larger):
                yield saved_bytes, larger


def writing_less(atoms: Atoms, piece: SegmentMask, writes: int) -> SegmentMask:
    """The segment that writes only `writes`, without the atoms that only its other outputs needed."""
    producer = {atoms.stands[a]: a for a in bits(piece.members)}
    members, stack = 0, [*bits(writes)]
    while stack:
        a = producer[stack.pop()]
        if not members >> a & 1:
            members |= 1 << a
            stack += [t for t in bits(atoms.preds[a]) if t in producer]
    return SegmentMask(members, writes)


def is_light(atoms: Atoms, atom: int) -> bool:
    """Whether the atom's tensor is cheap to compute again: a view, or pointwise."""
    return bool(atoms.light >> atom & 1)
