"""Bytes that a segment moves at the least, from its atoms alone: says of most candidates that they are in no cheapest
cover before they are looked at, or even built.

A segment writes what it writes, whole. Of each tensor it reads as much as one of its atoms needs that is computed
whole, and an atom is computed whole wherever it is written or a reader that is computed whole needs all of it. Whether
an atom is read by a segment's other atoms too only adds to that: no segment's `traffic_of` is below.

    %1 = exp(%0); %2 = slice(%1); %3 = neg(%2)     {%3} reads as much of %1 as it writes; {%1, %3} need not read all
                                                   of %0, unless %1 is an output
"""

from scheduler.atoms import Atoms
from scheduler.cover import bits
from scheduler.segment import extract
from scheduler.traffic import least_reads


class Least:
    """Of segments of one graph."""

    def __init__(self, atoms: Atoms) -> None:
        self._atoms = atoms
        self._read_bytes: list[dict[int, int]] = []  # by atom, of each tensor
        self._known: dict[int, int] = {}
        whole = list[int]()  # by atom, the tensors that it needs all of
        for a in range(len(atoms)):
            graph = extract(atoms, 1 << a).graph
            tensors = list(bits(atoms.reads[a] & ~(1 << a)))
            needed = least_reads(graph)
            self._read_bytes.append({t: read_bytes for t, (read_bytes, _) in zip(tensors, needed, strict=True)})
            whole.append(sum(1 << t for t, (_, is_whole) in zip(tensors, needed, strict=True) if is_whole))
        certain = 0  # atoms that are computed whole wherever they are computed
        for a in reversed(range(len(atoms))):
            readers = bits(atoms.succs[a])
            if atoms.outputs >> a & 1 or any(certain >> b & 1 and whole[b] >> a & 1 for b in readers):
                certain |= 1 << a
        self._certain = certain

    def bytes(self, members: int) -> int:
        """That a segment of these atoms reads and writes at the least."""
        if members not in self._known:
            self._known[members] = self._bytes(members)
        return self._known[members]

    def _bytes(self, members: int) -> int:
        atoms = self._atoms
        written = atoms.writes_of(members)
        read: dict[int, int] = {}
        for a in bits(members & (self._certain | written)):
            for t, read_bytes in self._read_bytes[a].items():
                if read_bytes > read.get(t, 0) and not members >> t & 1:
                    read[t] = read_bytes
        return sum(read.values()) + sum(atoms.nodes[a].bytes for a in bits(written))
