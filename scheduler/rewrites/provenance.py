"""Provenance of nodes that rewrites made: which nodes of the graph given they are, are halves of, or are a way to."""

from collections.abc import Sequence

from fusion_ir.core.node import Node
from fusion_ir.records import Half, Written
from scheduler.rewrites.prepare import Prepared


def halves_of(prepared: Prepared, cone: Sequence[Node]) -> tuple[Half, ...]:
    """Halves of given nodes that a launch with this cone computes; none of nodes that it computes as a whole."""
    if not prepared.halves:
        return ()
    computed = set(cone)
    found: list[Half] = []
    for position, ways in sorted(prepared.halves.items()):
        for way in ways:
            first, second = computed.intersection(way.first), computed.intersection(way.second)
            count = len(first) + len(second)
            if count and count < len(way.of):
                which = "both" if first and second else "first" if first else "second"
                found.append(Half(node=position, half=which, parts=way.parts, terms=way.terms, rest=way.rest))
    return tuple(found)


def other_ways_of(prepared: Prepared, cone: Sequence[Node]) -> tuple[int, ...]:
    """Positions of given nodes to which a node of the cone leads another way, by an alternative, and of which none is
    the node or a half."""
    serves, tensor = prepared.alternatives.serves, prepared.alternatives.tensor
    computed = {p for n in cone for p in prepared.tensors.get(tensor(n), ())}
    halved = {p for p, ways in prepared.halves.items() for way in ways if not way.of.isdisjoint(cone)}
    aimed = {p for n in cone if n in serves for p in prepared.origin.get(n, ())}
    return tuple(sorted(aimed - computed - halved))


def written_of(prepared: Prepared, node: Node) -> Written | None:
    """The given nodes that a tensor written by a step is, or is a part of; None where nothing is known of it."""
    whole = prepared.tensors.get(prepared.alternatives.tensor(node), ())
    if whole:
        return Written(nodes=whole)
    split = [(p, way) for p, ways in sorted(prepared.halves.items()) for way in ways]
    halved = [p for p, way in split if node in way.of] or [p for p, way in split if node in way.made]
    nodes = tuple(dict.fromkeys(halved or prepared.origin.get(node, ())))
    return Written(nodes=nodes, whole=False) if nodes else None
