"""Choices of `random_graphs` drawn by hypothesis, so that a failing graph shrinks."""

from hypothesis import strategies as st

from fusion_ir.core.graph import Graph
from testing.random_graphs import any_graph, pointwise_graph
from tests.support.random_reductions import reduction_graph


class Drawn:
    """A Chooser over hypothesis data."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def below(self, n: int) -> int:
        return self._data.draw(st.integers(0, n - 1))


@st.composite
def graphs(draw: st.DrawFn, *, pointwise: bool = False) -> Graph:
    """Random graphs of every kind of op, or of those that family `pointwise` takes."""
    chooser = Drawn(draw(st.data()))
    return pointwise_graph(chooser, steps=12, max_elements=60) if pointwise else any_graph(chooser, steps=12)


@st.composite
def reductions(draw: st.DrawFn) -> Graph:
    """Small random graphs around reductions."""
    return reduction_graph(Drawn(draw(st.data())), steps=4, max_elements=60)
