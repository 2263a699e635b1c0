"""Stores: pieces of outputs, each over axes of its own, refined until every view in its cone can be expressed."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from codegen.lowering.index import Affine, Axes, Axis, Refine, flatten, var
from codegen.lowering.pull_rules import puller
from codegen.lowering.puller import Index, Puller
from codegen.lowering.reduction_axes import ReductionAxes, axes_of, refined, renamed
from codegen.lowering.value import Value, Values
from fusion_ir.core.graph import Graph

MAX_PIECES = 24  # pieces that outputs are cut into, beyond one each; with more, masks and opaque digits take over
MAX_VALUES = 6000


@dataclass(frozen=True)
class Store:
    """One piece of output `out`: its index in the node, which varies over the piece."""

    out: int
    index: Index

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Axes of extent above 1, outermost dimension first."""
        return axes_of(self.index)


@dataclass
class Pulled:
    """Stores with their values, still by node index (offsets come later); what unification works on."""

    graph: Graph
    axes: Axes
    stores: list[Store]
    bound: ReductionAxes
    refine: bool

    def pull(self) -> tuple[list[Value], Puller, Values]:
        """Pulls every store afresh. Raises Split or Cut where an axis must be refined."""
        values = Values(MAX_VALUES)
        pulling = puller(self.graph, values, self.bound, refine=self.refine)
        roots = [pulling.pull(self.graph.outputs[s.out].node, s.index) for s in self.stores]
        return roots, pulling, values

    def is_refined(self, done: set[Store]) -> bool:
        """Whether every store can be pulled; where one cannot, an axis of it is refined. done: stores that could be,
        as long as no reduction's axis was refined since."""
        pulling = puller(self.graph, Values(MAX_VALUES), self.bound, refine=self.refine)
        try:
            for store in self.stores:
                if store not in done:
                    pulling.pull(self.graph.outputs[store.out].node, store.index)
                    done.add(store)
        except Refine as request:
            if any(request.axis in axes_of(piece) for pieces in self.bound.pieces.values() for piece in pieces):
                done.clear()
            self.refine_axis(request)
            return False
        return True

    def refine_axis(self, request: Refine) -> None:
        """Splits or cuts an axis; what holds it becomes one or two pieces over axes of their own."""
        self._rewrite(lambda index: refined(index, request, self.axes))

    def rename(self, renaming: Mapping[Axis, Affine]) -> None:
        self._rewrite(lambda index: renamed(index, renaming))

    def _rewrite(self, change: Callable[[Index], list[Index]]) -> None:
        self.stores = [Store(s.out, index) for s in self.stores for index in change(s.index)]
        self.bound.rewrite(change)

    def offset(self, store: Store) -> Affine:
        """Element offset of a store in its output."""
        return flatten(store.index, self.graph.outputs[store.out].strides)


def pull_outputs(graph: Graph) -> Pulled:
    """Stores of all outputs of a graph without empty outputs, refined until each pull succeeds."""
    for refine in (True, False):
        axes = Axes()
        pulled, done = Pulled(graph, axes, list(_whole_outputs(graph, axes)), ReductionAxes(axes), refine), set[Store]()
        while len(pulled.stores) + len(pulled.bound) <= MAX_PIECES + len(graph.outputs) + len(pulled.bound.pieces):
            if pulled.is_refined(done):
                return pulled
    raise AssertionError("without refinement no view asks for one")


def _whole_outputs(graph: Graph, axes: Axes) -> Iterable[Store]:
    for k, output in enumerate(graph.outputs):
        if output.node.elements:
            yield Store(k, tuple(var(axes.new(size)) for size in output.node.sizes))
