"""Cutting a graph into atoms each of which some kernel computes: views that none reads through are stored first."""

from collections.abc import Callable, Iterator
from itertools import product
from math import prod

from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.ops.value_preserving import is_free
from scheduler.bitset import bits
from scheduler.rewrites.alternatives import Alternatives
from scheduler.segments.atoms import Atoms, atoms_of

MOST_WAYS = 1000  # of storing views, that are looked at for one atom
Computable = Callable[[Atoms, int], bool]


def cut(
    graph: Graph,
    computable: Computable,
    materialised: frozenset[Node] = frozenset(),
    alternatives: Alternatives | None = None,
) -> Atoms:
    """Atoms each of which can be computed alone: where `computable(atoms, atom)` says no, free nodes that the atom
    would have recomputed become atoms, so that it reads finished tensors. Alternatives that cannot be computed are not
    worth that."""
    while True:
        atoms = atoms_of(graph, materialised, alternatives)
        stored = frozenset[Node]()
        for a in range(atoms.given):
            if atoms.free_below(a) and not computable(atoms, a):
                stored |= _worth_storing(atoms, a, computable)
        if not stored:
            return atoms
        materialised |= stored


def _worth_storing(atoms: Atoms, atom: int, computable: Computable) -> frozenset[Node]:
    """The free nodes of fewest bytes that make the atom computable once they are stored; all below it where none do.

    contract(cast(pad(%0)), cast(%1))     ->   pad(%0), where operands may be cast on the way
    """
    alone, given = _alone(atoms, atom)
    (output,) = alone.outputs
    ways = [(frozenset[Node](), *(frozenset((n,)) for n in _chain(a))) for a in output.node.args]
    if prod(map(len, ways)) > MOST_WAYS:  # of a concatenation of many views, for instance
        return atoms.free_below(atom)
    options = {frozenset[Node]().union(*chosen) for chosen in product(*ways)} - {frozenset[Node]()}
    order = {n: i for i, n in enumerate(alone.nodes)}
    for option in sorted(options, key=lambda nodes: (sum(n.bytes for n in nodes), sorted(order[n] for n in nodes))):
        trial = atoms_of(alone, option)
        if computable(trial, trial.nodes.index(output.node)):
            return frozenset(given[n] for n in option)
    return atoms.free_below(atom)


def _alone(atoms: Atoms, atom: int) -> tuple[Graph, dict[Node, Node]]:
    """A graph that computes the atom alone from the tensors that it reads; by node of it, the node of `atoms`."""
    node, read = atoms.nodes[atom], bits(atoms.reads[atom])
    new = {atoms.tensors[t]: atoms.boundary.input(position, t) for position, t in enumerate(read)}
    for n in (*sorted(atoms.free_below(atom), key=atoms.order.__getitem__), node):
        new[n] = n.over(tuple([new[a] for a in n.args]))
    strides = next((o.strides for o in atoms.graph.outputs if o.node is node), dense_strides(node.sizes))
    graph = Graph(tuple(atoms.boundary.specs[t] for t in read), (OutputSpec(new[node], strides),))
    return graph, {own: n for n, own in new.items()}


def _chain(node: Node) -> Iterator[Node]:
    """Free nodes from this one on down to a tensor, or to where several come together."""
    while is_free(node):
        yield node
        if len(node.args) != 1:
            return
        (node,) = node.args
