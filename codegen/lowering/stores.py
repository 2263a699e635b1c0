"""Stores: pieces of outputs, each over axes of its own, refined until every view in its cone can be expressed."""

from collections.abc import Iterable
from dataclasses import dataclass

from codegen.lowering.index import Affine, Axes, Axis, Cut, Refine, Split, flatten, var
from codegen.lowering.pull import puller
from codegen.lowering.puller import Index, Puller
from codegen.lowering.value import Value, Values
from fusion_ir.graph import Graph

MAX_PIECES = 24  # pieces that outputs are cut into, beyond one each; with more, masks and opaque digits take over
MAX_VALUES = 6000


@dataclass(frozen=True)
class Store:
    """One piece of output `out`: its index in the node, which varies over the piece."""

    out: int
    index: Index

    def subst(self, mapping: dict[Axis, Affine]) -> "Store":
        return Store(self.out, tuple(e.subst(mapping) for e in self.index))

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Axes of extent above 1, outermost dimension first."""
        return tuple(dict.fromkeys(a for e in self.index for a in e.axes))


@dataclass
class Pulled:
    """Stores with their values, still by node index (offsets come later); what unification works on."""

    graph: Graph
    axes: Axes
    stores: list[Store]
    refine: bool

    def pull(self) -> tuple[list[Value], Puller, Values]:
        """Pulls every store afresh. Raises Split or Cut where an axis must be refined."""
        values = Values(MAX_VALUES)
        pulling = puller(self.graph, values, self.axes, refine=self.refine)
        roots = [pulling.pull(self.graph.outputs[s.out].node, s.index) for s in self.stores]
        return roots, pulling, values

    def offset(self, store: Store) -> Affine:
        """Element offset of a store in its output."""
        return flatten(store.index, self.graph.outputs[store.out].strides)


def pull_outputs(graph: Graph) -> Pulled:
    """Stores of all outputs of a graph without empty outputs, refined until each pull succeeds."""
    for refine in (True, False):
        axes = Axes()
        pulled = Pulled(graph, axes, list(_whole_outputs(graph, axes)), refine)
        while len(pulled.stores) <= MAX_PIECES + len(graph.outputs):
            try:
                pulled.pull()
                return pulled
            except Refine as request:
                pulled.stores = [piece for s in pulled.stores for piece in _refined(s, request, axes)]
    raise AssertionError("without refinement no view asks for one")


def _whole_outputs(graph: Graph, axes: Axes) -> Iterable[Store]:
    for k, output in enumerate(graph.outputs):
        if output.node.elements:
            yield Store(k, tuple(var(axes.new(size)) for size in output.node.sizes))


def _refined(store: Store, request: Refine, axes: Axes) -> list[Store]:
    """The store over finer axes: itself where it has no such axis, one store for a split, two for a cut."""
    axis = request.axis
    if axis not in store.axes:
        return [store]
    if isinstance(request, Split):
        outer, inner = axes.new(axis.extent // request.inner), axes.new(request.inner)
        return [store.subst({axis: var(outer) * request.inner + var(inner)})]
    assert isinstance(request, Cut)
    first, second = axes.new(request.at), axes.new(axis.extent - request.at)
    return [store.subst({axis: var(first)}), store.subst({axis: var(second) + request.at})]
