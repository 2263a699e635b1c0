"""`python -m benchmarks.search`, tried out at small sizes, and the ways of cutting that it compares the search with."""

import json
from pathlib import Path

import pytest

import fusion_ir.building as ir
from benchmarks.corpus.case import Inputs
from benchmarks.search import run as search
from benchmarks.search.baselines import greedy, largest, unfused
from benchmarks.search.graphs import GRAPHS, butterflies, chains, diamonds, layers
from fusion_ir.core.extent import dense_strides
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import f32
from scheduler.segments.atoms import Atoms, atoms_of
from tests.support.devices import CPU_DEVICE


def cut(outcome: Node, inputs: Inputs) -> Atoms:
    return atoms_of(Graph(tuple(inputs.specs), (OutputSpec(outcome, dense_strides(outcome.sizes)),)))


def diamond() -> Atoms:
    """exp (atom 0) is read by tanh and neg (1 and 2, whichever comes first), which add (3) joins."""
    inputs = Inputs(f32)
    x = ir.exp(inputs(4, 8))
    atoms = cut(ir.add(ir.tanh(x), ir.neg(x)), inputs)
    assert [n.op for n in atoms.nodes][::3] == ["exp", "add"]
    return atoms


def test_what_simpler_ways_of_cutting_choose() -> None:
    atoms = diamond()
    alone = {1: 5.0, 2: 5.0, 4: 5.0, 8: 5.0}
    assert unfused(atoms) == (1, 2, 4, 8)
    # Two atoms together never pay, all of them would: who goes by edges stays below.
    dear = {**alone, 3: 11.0, 6: 11.0, 12: 11.0, 10: 11.0, 5: 11.0, 15: 6.0}
    assert greedy(atoms, dear.__contains__, dear.__getitem__) == (1, 2, 4, 8)
    assert largest(atoms, dear.__contains__) == (15,)
    # {exp, a side} is as dear as both apart: it is merged; nothing larger is accepted.
    pairs = {**alone, 3: 10.0, 5: 10.0, 12: 10.5, 10: 10.5}
    assert greedy(atoms, pairs.__contains__, pairs.__getitem__) == (3, 4, 8)
    # Merging the other two, too, closes no cycle: only what is legal counts here.
    assert largest(atoms, pairs.__contains__) == (3, 12)


def test_no_way_of_cutting_closes_a_cycle() -> None:
    """exp and add together would read what they write by way of tanh."""
    inputs = Inputs(f32)
    x = ir.exp(inputs(4, 8))
    atoms = cut(ir.add(x, ir.tanh(x)), inputs)
    assert [n.op for n in atoms.nodes] == ["exp", "tanh", "add"]
    costs = {1: 5.0, 2: 5.0, 4: 5.0, 5: 6.0}
    assert largest(atoms, costs.__contains__) == (1, 2, 4)
    assert greedy(atoms, costs.__contains__, costs.__getitem__) == (1, 2, 4)


@pytest.mark.parametrize(
    "graph", [layers(2), layers(2, alike=True), chains(2), diamonds(4), butterflies(2)], ids=lambda g: str(len(g.nodes))
)
def test_graphs_are_connected_as_they_say(graph: Graph) -> None:
    used = {n for n in graph.nodes if n.op == "input"}
    assert len(used) == len(graph.inputs)


def test_layers_differ_unless_alike() -> None:
    assert len({n.sizes for n in layers(6).nodes}) > 2 * len({n.sizes for n in layers(6, alike=True).nodes})


def test_a_row_and_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GRAPHS, "tiny", lambda: chains(1))  # type: ignore[misc]  what is typed as a Mapping is a dict
    row = search.measured("tiny", CPU_DEVICE, 1)
    assert (row.runs, row.atoms > 4, row.exact, row.over_relaxed) == (1, True, True, 1.0)
    assert 0 < row.segments <= row.atoms <= row.candidates
    assert row.seconds is not None
    assert row.seconds.keys() == {*search.PHASES, "tune"}
    failed = search.Row("chains 32", "h200", problem="stopped")
    text = search.page([row, failed], [search.against("tiny", chains(1), CPU_DEVICE)])
    lines = [line for line in text.splitlines() if line.startswith("|")]
    tables = {line.count("|") for line in lines}
    assert len(tables) == 2, "rows of a table have as many cells as its head"
    assert "not met" in text


@pytest.mark.parametrize("graph", [chains(2), diamonds(4), butterflies(2)], ids=["chains", "diamonds", "butterflies"])
def test_no_baseline_is_predicted_to_be_faster(graph: Graph) -> None:
    found = search.against("graph", graph, CPU_DEVICE, cover_s=120)  # beside other tests, too
    assert found.exact
    assert min(found.ratios.values()) >= 1 - 1e-9
    assert found.ratios["no fusion"] > 1.5


def test_results_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["", "--dry", "--graph", "none", "--case", "silu_mul", "--target", "h200",
                                     "--out", str(tmp_path / "search")])  # fmt: skip
    assert search.main() == 0
    found = json.loads((tmp_path / "search.json").read_text())
    assert [a["case"].split()[0] for a in found["corpus"]] == ["silu_mul"] * len(found["corpus"])
    assert "largest legal fusion" in (tmp_path / "search.md").read_text()
