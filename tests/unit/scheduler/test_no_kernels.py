"""Searches in graphs whose larger segments families accept, and then have no kernels for."""

from collections.abc import Callable

import pytest

from fusion_ir import building as B
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import f32
from scheduler.budget import Budget
from scheduler.cover.oracle import CoverOracle
from scheduler.interfaces import Forgetful
from scheduler.plan_selection import MOST_COVERS
from scheduler.tune import tune
from testing.tensors import graph_of, spec
from tests.unit.scheduler.test_optimistic import DEVICES

FURTHER = 12  # covers for each round, once what holds a segment without a kernel is left out: 50 in all of four rounds


def in_turns(rounds: int) -> Graph:
    """Softmax along one axis and the other, again and again: whose sums are over the other axis than the one before."""

    def build(x: Node) -> Node:
        for _ in range(rounds):
            x = B.softmax(B.softmax(x, 0), 1)
        return x

    return graph_of([spec((4, 8), f32)], build)


@pytest.mark.parametrize("rounds", [2, 4])
def test_segments_without_kernels_are_not_tried_in_all_combinations(
    rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan by predictions has no unfused graph to fall back to, and no time at which it would be late."""
    covers: list[int] = []
    usual: Callable[..., object] = CoverOracle.cheapest

    def counted(self: CoverOracle, *args: object, **kwargs: object) -> object:
        found = usual(self, *args, **kwargs)
        covers.append(len(found))  # type: ignore[arg-type]
        assert len(covers) <= 2 * MOST_COVERS + FURTHER * rounds
        return found

    monkeypatch.setattr(CoverOracle, "cheapest", counted)
    [device] = [d for d in DEVICES if d.target == "cpu"]
    plan = tune(in_turns(rounds), device, Budget(0.0), Forgetful(), None)
    assert 1 < len(plan.steps) <= 2 * rounds
