"""The cheapest cover is found although few candidates are looked at."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from codegen.families import FAMILIES, TAKING_PARTS
from fusion_ir.records import Device
from scheduler.cost.model import Estimate
from scheduler.cover.execution_order import in_order
from scheduler.cover.oracle import CoverOracle
from scheduler.cover.solver import Cover, CoverProblem, bits
from scheduler.deadline import Deadline
from scheduler.segments.enumeration import Candidate
from scheduler.segments.segment import extract
from scheduler.segments.segment_mask import SegmentMask
from testing.random_graphs import Seeded, any_graph
from tests.support.cover_problems import Problem, cheapest
from tests.support.whole import WHOLE, some
from tests.unit.scheduler.test_optimistic import DEVICES, searched


@pytest.mark.soak
@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.target)
@pytest.mark.parametrize("which", ["predictions", "bounds"])
def test_as_cheap_as_if_all_candidates_were_looked_at(device: Device, which: str) -> None:
    looked, all_ = 0, 0
    for seed in some(range(100), 12, f"{which} {device.target}"):
        ledger, atoms, found = searched(any_graph(Seeded(seed), steps=30), device)
        estimate: Estimate = getattr(ledger.model, which)
        seen: set[Candidate] = set()

        def us(candidate: Candidate, of: Estimate = estimate, seen: set[Candidate] = seen) -> float:
            seen.add(candidate)
            return of.us(candidate)

        covers = CoverOracle(atoms, found, ledger, Deadline(60.0, 0.0, None, time.monotonic), 10.0)
        chosen = covers.cheapest(Estimate(us, estimate.seeming_us, estimate.least_us))
        costs = {p: estimate.us(c) for p, c in found.accepted.items()}
        hypergraph = atoms.hypergraph
        expected = CoverProblem(hypergraph).solve(costs)
        assert expected is not None, seed
        total_us = sum(costs[c.segment.piece] for c in chosen)
        assert total_us == pytest.approx(expected.cost_us, rel=1e-9), seed
        if len(atoms) <= 12:
            assert total_us == pytest.approx(cheapest(Problem(hypergraph, costs)), rel=1e-9), seed
        looked, all_ = looked + len(seen), all_ + len(costs)
    assert looked < 0.8 * all_


@pytest.mark.soak
@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.target)
def test_out_of_time_a_cover_writes_each_tensor_once(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it was left with: here the pieces of two covers."""

    def left(problem: CoverProblem) -> Callable[..., Cover | None]:
        solve, hypergraph = problem.solve, problem.hypergraph

        def solved(costs: dict[SegmentMask, float], *others: Any) -> Cover | None:
            cover = solve(costs, *others)
            other = cover and solve({p: us for p, us in costs.items() if p not in cover.pieces})
            if not cover or not other:
                return cover
            pieces = {p: hypergraph.read(p.members) for p in cover.pieces + other.pieces}
            return replace(cover, pieces=in_order(pieces.items(), hypergraph.outputs), exact=False)

        return solved

    twice = 0
    for seed in some(range(60), 20, f"time {device.target}"):
        ledger, atoms, found = searched(any_graph(Seeded(seed), steps=30), device)
        covers = CoverOracle(atoms, found, ledger, Deadline(60.0, 0.0, None, time.monotonic), 10.0)
        solve = left(covers.problem)
        monkeypatch.setattr(covers.problem, "solve", solve)
        given = solve({p: c.weight * ledger.model.predictions.seeming_us(c) for p, c in covers.usable.items()})
        assert given is not None, seed
        written = [t for p in given.pieces for t in bits(p.writes)]
        twice += len(set(written)) < len(written)
        chosen = [c.segment.piece for c in covers.cheapest(ledger.model.predictions)]
        written = [t for p in chosen for t in bits(p.writes)]
        assert len(set(written)) == len(written), seed
        wanted = atoms.outputs
        for piece in chosen:
            wanted |= atoms.reads_of(piece.members)
        assert not [t for t in written if not wanted >> t & 1], seed
    assert twice > 20 or not WHOLE


@pytest.mark.soak
@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.target)
def test_families_answer_the_same_whenever_they_are_asked(device: Device) -> None:
    """Also those that are not asked since they accept the whole graph."""
    assert FAMILIES.keys() >= TAKING_PARTS
    sure = 0
    for seed in some(range(100), 40, f"asked {device.target}"):
        ledger, atoms, found = searched(any_graph(Seeded(seed), steps=8), device)
        for piece, candidate in found.accepted.items():
            graph = extract(atoms, piece).graph
            names = [name for name, family in FAMILIES.items() if family.accepts(graph, device) is None]
            sure += "segment" not in vars(candidate.families)
            ledger.model.predicted_us(candidate)
            assert list(candidate.families) == names, (seed, piece)
            best = min(ledger.model.uncorrected_us(candidate, name) for name in names)
            assert ledger.model.predicted_us(candidate) == best, (seed, piece)
        for a in range(len(atoms)):
            answer = ledger.acceptor.ask(atoms, atoms.piece(1 << a))
            assert (answer is None) == (found.whole(1 << a) is None)
    assert sure > 100 or not WHOLE
