"""Limits of a graph while it is built: nodes made, their operands, and distinct nodes that a text keeps."""

import pytest

from fusion_ir.core import node_quota
from fusion_ir.core.extent import shape_of
from fusion_ir.core.graph import InputSpec
from fusion_ir.core.limits import GraphLimits
from fusion_ir.core.node import Node
from fusion_ir.core.node_quota import keep, limited
from fusion_ir.dtype import f32
from fusion_ir.errors import FormatError
from fusion_ir.ops import make, make_input

X = make_input(0, InputSpec(shape_of((4,)), f32, (1,)))


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_quota, "LIMITS", GraphLimits(nodes=10, made=30, made_operands=40))


def chain(length: int) -> Node:
    node = X
    for _ in range(length):
        node = make("neg", [node])
    return node


def test_kept_nodes_are_counted_once_each() -> None:
    with limited():
        for length in (4, 9, 9, 2):
            keep("3:1", chain(length))
        with pytest.raises(FormatError, match=r"^4:7: 11 nodes after composite ops were taken apart, at most 10"):
            keep("4:7", make("abs", [chain(4)]))


def test_made_nodes_are_counted_each_time() -> None:
    with limited():
        chain(15)
        chain(15)
        with pytest.raises(FormatError, match="more than 30 nodes are made of it"):
            chain(1)


def test_operands_are_counted() -> None:
    with limited():
        make("cat", [X] * 40, {"axis": 0})
        with pytest.raises(FormatError, match="more than 40 operands in all"):
            make("neg", [X])


def test_a_block_within_another_counts_with_that_and_others_begin_anew() -> None:
    for _ in range(2):
        with limited():
            keep("", chain(9))
            with limited(), pytest.raises(FormatError, match="11 nodes"):
                keep("", chain(10))


def test_nothing_is_counted_elsewhere() -> None:
    keep("", chain(50))
