"""A copy of a graph at smaller extents: its ops over fewer elements, for whoever has to run it slowly.

Axes that must have equal extents are halved together: through pointwise ops, permutes, contractions, reshapes, the kept
axes of reductions ... Axes whose extents a slice, a pad, a cat, or a reshape that splits or joins them states, stay:

    t0[1, 4096, 4096] = input                                  t0[1, 16, 4096]
    t1[1, 4096, 32, 128] = reshape(t0)           ->            t1[1, 16, 32, 128]
    t2[1, 4096, 32, 64] = slice(t1, ..., stop 64)              t2[1, 16, 32, 64]
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import prod

from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.ops import OPS, OpKind, kept_axes, kind_of, make, make_input

ELEMENTS = 1 << 14
LEAST_EXTENT = 4  # smaller ones are left as they are: mostly they are counts of something

Place = tuple[Node, int]


def reduced(graph: Graph, elements: int = ELEMENTS) -> Graph:
    """The graph with extents halved, the longest first, until no tensor has more than `elements` elements or nothing
    can be halved. Odd extents stay odd. Dense tensors stay dense, others keep their strides; constants, such as
    the divisor of a mean that is written as a sum, stay."""
    parents: dict[Place, Place] = {(n, a): (n, a) for n in graph.nodes for a in range(n.rank)}
    fixed: list[Place] = []
    for node in graph.nodes:
        for one, other in _linked(node):
            parents[_root(parents, one)] = _root(parents, other)
        fixed += _fixed(node)
    pinned = {_root(parents, place) for place in fixed}
    extents = {_root(parents, (n, a)): n.sizes[a] for n, a in parents}

    def sizes(node: Node) -> tuple[int, ...]:
        return tuple(extents[_root(parents, (node, a))] for a in range(node.rank))

    while graph.nodes:
        largest = max(graph.nodes, key=lambda n: prod(sizes(n)))
        free = {_root(parents, (largest, a)) for a in range(largest.rank)} - pinned
        halved = {p: extents[p] // 2 | extents[p] % 2 for p in free if extents[p] > LEAST_EXTENT}
        longest = max(halved, key=lambda p: (extents[p], repr(p[0].sizes), p[1]), default=None)
        if prod(sizes(largest)) <= elements or longest is None:
            break
        extents[longest] = halved[longest]
    return _made_again(graph, {n: sizes(n) for n in graph.nodes})


def _linked(node: Node) -> Iterator[tuple[Place, Place]]:
    """Axes of a node and of its operands that have one extent."""
    args, all_axes = node.args, range(node.rank)
    match kind_of(node):
        case OpKind.POINTWISE | OpKind.SCAN:
            yield from (((node, a), (arg, a)) for arg in args for a in all_axes)
        case OpKind.REDUCTION:
            gone = (node.attr("axis", int),) if "axis" in OPS[node.op].attrs else node.ints("axes")
            kept = [a for a in range(args[0].rank) if a not in gone]
            yield from (((node, i), (args[0], a)) for i, a in enumerate(kept))
        case OpKind.CONTRACT:
            for a, b, i in zip(node.ints("a_axes"), node.ints("b_axes"), range(len(node.ints("a_axes"))), strict=True):
                places = [(node, i)] * (i < node.rank) + [(args[0], a)] * (a >= 0) + [(args[1], b)] * (b >= 0)
                yield from pairwise(places)
        case OpKind.GATHER:
            yield from _linked_by_gather(node)
        case OpKind.SCATTER:
            axis = node.attr("axis", int)
            yield (args[0], axis), (args[1], 0)
            yield from (((node, a), (args[0], a)) for a in all_axes if a != axis)
        case OpKind.VIEW:
            yield from _linked_by_view(node)
        case _:
            pass


def _linked_by_gather(node: Node) -> Iterator[tuple[Place, Place]]:
    (data, index), axis = node.args, node.attr("axis", int)
    if node.op == "index_select":
        yield from (((node, a), (index, 0) if a == axis else (data, a)) for a in range(node.rank))
        return
    for a in range(node.rank):
        yield (node, a), (index, a)
        if a != axis and data.sizes[a] == node.sizes[a]:
            yield (node, a), (data, a)


def _linked_by_view(node: Node) -> Iterator[tuple[Place, Place]]:
    for arg, kept in zip(node.args, kept_axes(node), strict=True):
        yield from (((node, a), (arg, b)) for a, b in kept.items())


def _fixed(node: Node) -> list[Place]:
    """Axes whose extents an attribute says, or that are part of what is split or joined."""
    args = node.args
    match node.op:
        case "slice" | "pad" | "cat":
            moved = [a for a in range(node.rank) if any(a not in kept for kept in kept_axes(node))]
        case "reshape":
            (kept,) = kept_axes(node)
            of = [(args[0], a) for a in range(args[0].rank) if a not in kept.values()]
            return [(node, a) for a in range(node.rank) if a not in kept] + of
        case "gather" | "take_along_axis":
            moved = [a for a in range(node.rank) if a != node.attr("axis", int) and args[0].sizes[a] != node.sizes[a]]
        case _:
            moved = []
    return [(n, a) for n in (node, *args) for a in moved]


def _root(parents: dict[Place, Place], place: Place) -> Place:
    while parents[place] != place:
        parents[place] = parents[parents[place]]
        place = parents[place]
    return place


def _made_again(graph: Graph, sizes: dict[Node, tuple[int, ...]]) -> Graph:
    """The graph with these extents."""
    used = {n.attr("position", int): n for n in graph.nodes if n.op == "input"}
    inputs = tuple(_input(spec, sizes[used[i]]) if i in used else spec for i, spec in enumerate(graph.inputs))
    made: dict[Node, Node] = {}
    for node in graph.nodes:
        if node.op == "input":
            position = node.attr("position", int)
            made[node] = make_input(position, inputs[position])
            continue
        attrs = dict(node.attrs)
        if "shape" in attrs:
            attrs["shape"] = shape_of(sizes[node])
        if "extent" in attrs:
            attrs["extent"] = sizes[node][node.attr("axis", int)]
        if node.op == "slice":
            moved = {a for _, a in _fixed(node)}
            stops = zip(node.ints("stop"), sizes[node], strict=True)
            attrs["stop"] = tuple(stop if a in moved else n for a, (stop, n) in enumerate(stops))
        made[node] = make(node.op, tuple(made[a] for a in node.args), attrs)
        assert made[node].sizes == sizes[node], f"{node}: {made[node].sizes}, not {sizes[node]}"
    outputs = tuple(
        OutputSpec(made[o.node], dense_strides(sizes[o.node]) if o.is_dense else o.strides, o.donates)
        for o in graph.outputs
    )
    return Graph(inputs, outputs)


def _input(spec: InputSpec, sizes: tuple[int, ...]) -> InputSpec:
    strides = dense_strides(sizes) if spec.is_dense else spec.strides
    return replace(spec, shape=shape_of(sizes), strides=strides)
