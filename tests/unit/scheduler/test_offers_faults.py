"""Faults put into rules: the comparison on random graphs finds each."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any

import pytest

from fusion_ir import building as build
from fusion_ir.core.node import Node
from fusion_ir.dtype import f64
from scheduler.rewrites.matching.labelled_contract import LabelledTensor, arranged
from scheduler.rewrites.rule import Alternative
from scheduler.rewrites.rules.constant_folding import DISTRIBUTING
from scheduler.rewrites.rules.contraction_views import THROUGH
from scheduler.rewrites.rules.horizontal_contract import SIBLINGS
from scheduler.rewrites.rules.matrix_chain import CHAINS
from scheduler.rewrites.rules.reuse_transposed import TWICE
from scheduler.rewrites.rules.scaling import SCALING
from scheduler.rewrites.rules.sum_of_products import SUMS
from scheduler.rewrites.rules.sum_of_products_as_product import FACTORING
from scheduler.rewrites.rules.views import VIEWS
from tests.support.offers import Checked

GRAPHS = 300  # in which a fault must show
Function = Callable[..., Any]


def _first(original: Function) -> Function:
    """A function that returns its first argument unchanged."""
    return lambda x, *rest: x


def _exchanged(original: Function) -> Function:
    """`join` with two axes of the result exchanged that have equal extents."""

    def wrong(*args: Any, **named: Any) -> LabelledTensor:
        right = original(*args, **named)
        sizes = right.node.sizes
        pairs = [(i, j) for j in range(len(sizes)) for i in range(j) if sizes[i] == sizes[j] > 1]
        return LabelledTensor(build.transpose(right.node, *pairs[0]), right.labels) if pairs else right

    return wrong


def _without_bias(original: Function) -> Function:
    def wrong(self: Any, u: LabelledTensor, v: LabelledTensor, needs: Any, settled: Any) -> LabelledTensor:
        right = original(self, u, v, needs, settled)
        return LabelledTensor(build.cast(arranged(u, right.labels, settled.extents), right.node.dtype), right.labels)

    return wrong


def _another_part(original: Function) -> Function:
    """A member of a horizontal product takes the part of the group's last member, where that is as wide as its own."""

    def wrong(node: Node, group: Any, product: Node) -> Node:
        (own,) = (shared for shared in group if shared.node is node)
        alike = [shared for shared in group if shared.own == own.own and shared.y.sizes == own.y.sizes]
        return (
            original(alike[-1].node, group, product)
            if alike[-1].node.sizes == node.sizes
            else original(node, group, product)
        )

    return wrong


def _any_factor(original: Function) -> Function:
    """Factors that have only their shape in common pass for one factor."""

    def wrong(f: Any, g: Any, terms: Any) -> bool:
        same = replace(g, source=f.source, window=f.window, dtype=f.dtype)
        return f.node.sizes == g.node.sizes and original(f, same, terms)

    return wrong


def _from_the_start(original: Function) -> Function:
    """A slice takes as many elements as it should, but from the start of each axis."""
    return lambda node: tuple((0, stop - start, step) for start, stop, step in original(node))


def _interleaved(original: Function) -> Function:
    def wrong(x: Node, axis: int, count: int) -> Node:
        sizes = (*x.sizes[: axis + 1], count, *x.sizes[axis + 1 :])
        wide = build.broadcast_in_dim(x, sizes, [d if d <= axis else d + 1 for d in range(x.rank)])
        return build.reshape(wide, original(x, axis, count).sizes)

    return wrong


def _in_order(original: Function) -> Function:
    """A permute that leaves its operand as it is, where the sizes of the result do not show it."""
    return lambda x, dims: x if original(x, dims).sizes == x.sizes else original(x, dims)


# By family: where what goes wrong.
REWRITES = "scheduler.rewrites."
FAULTS: dict[str, tuple[Sequence[Alternative], str, Callable[[Function], Function]]] = {
    "chains: an axis": (CHAINS, "rules.matrix_chain.join", _exchanged),
    "chains: where a slice begins": (CHAINS, "matching.strided_slices.of_slice", _from_the_start),
    "distributing: no bias": (DISTRIBUTING, "rules.constant_folding._Distribution._added", _without_bias),
    "siblings: another part": (SIBLINGS, "rules.horizontal_contract._part", _another_part),
    "factoring: a sign": (FACTORING, "rules.sum_of_products_as_product._negative", _first),
    "factoring: no factor in common": (FACTORING, "rules.sum_of_products_as_product._is_one", _any_factor),
    "scaling: no scale": (SCALING, "rules.scaling._scaled", _first),
    "scaling: an axis": (SCALING, "rules.scaling.join", _exchanged),
    "through: an axis": (THROUGH, "rules.contraction_views.join", _exchanged),
    "through: where a slice begins": (THROUGH, "matching.strided_slices.of_slice", _from_the_start),
    "sums: an axis": (SUMS, "rules.sum_of_products.join", _exchanged),
    "twice: order of axes": (TWICE, "rules.reuse_transposed.permute", _in_order),
    "views: order of repeats": (VIEWS, "rules.views._repeated", _interleaved),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_shows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table, place, fault = FAULTS[name]
    monkeypatch.setattr(REWRITES + place, fault(resolve_name(REWRITES + place)))
    assert any(Checked(seed, f64, table).wrong for seed in range(GRAPHS))
