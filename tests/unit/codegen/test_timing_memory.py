"""Sets of tensors that a kernel is timed on in turn: more than caches hold, no more than a machine likes to give."""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen.child import cpu_bench, cpu_memory, late_checks
from codegen.child.case import make_case
from codegen.child.cpu_memory import (
    MOST_BYTES,
    MOST_COLD,
    MOST_SETS,
    Arena,
    TimingMemory,
    output_sets,
    rotating_sets,
)
from codegen.child.late_checks import Runs, review
from fusion_ir.text.printing import print_graph
from tests.support.stored_plans import chain

MIB = 1 << 20
CACHES = st.integers(12, 31).map(lambda k: 1 << k)


@given(inputs=st.integers(0, 1 << 31), outputs=st.integers(1, 1 << 31), cache=CACHES)
def test_sets_are_larger_than_the_cache_twice_and_smaller_than_what_is_given_to_them(
    inputs: int, outputs: int, cache: int
) -> None:
    one = inputs + outputs
    sets = rotating_sets(inputs, one, cache)
    all_but_one = (sets - 1) * one
    assert sets >= 1
    assert sets == MOST_SETS or sets * one >= min(2 * cache, MOST_BYTES)
    assert all_but_one <= min(max(2 * cache + one, MOST_COLD * cache), MOST_BYTES + one)


def test_inputs_are_read_from_memory_where_outputs_go_past_the_cache() -> None:
    assert rotating_sets(33 * MIB, 34 * MIB, 32 * MIB) * 33 * MIB > 4 * 32 * MIB


def test_a_cache_of_half_a_gigabyte_does_not_take_four() -> None:
    """480 MiB, as a virtual machine of two cores names it: eight times that is what the rule without a limit makes."""
    assert rotating_sets(4 * MIB, 8 * MIB, 480 * MIB) * 8 * MIB <= MOST_BYTES + 8 * MIB


def test_cases_let_go_of_their_sets_for_those_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    cases: OrderedDict[tuple[str, int], cpu_bench.CpuCase] = OrderedDict()
    monkeypatch.setattr(cpu_memory, "MOST_BYTES", MIB)
    monkeypatch.setattr(cpu_bench, "_cases", cases)
    memories: list[TimingMemory] = []
    for number in range(3):
        prepared = cpu_bench.CpuCase(make_case(chain(1000 * (number + 1), ["neg"]), 0))
        cases[str(number), 0] = prepared
        memories.append(prepared.timing_memory(480 * MIB))
        assert 0.9 * MIB <= memories[-1].bytes <= 1.1 * MIB
        assert prepared.timing_memory(480 * MIB) is memories[-1]
    again = cases["0", 0].timing_memory(480 * MIB)
    assert again is not memories[0], "made again"
    assert all(again.has_inputs(which) for which in range(again.sets))
    assert cases["2", 0].timing_memory(480 * MIB) is not memories[2]


def test_memory_is_used_again_as_if_it_were_new() -> None:
    arena = Arena()
    large, small = (make_case(chain(n, ["neg"]), 0) for n in (2000, 1000))
    first = TimingMemory(large, MIB, arena)
    address = int(first.addresses.min())
    for which in range(first.sets):
        for tensor in first.tensors(which):
            tensor.fill(7)
    for case in (small, large):
        second = TimingMemory(case, MIB, arena)
        assert int(second.addresses.min()) == address
        assert all(second.has_inputs(which) for which in range(second.sets))
        assert not any(second.tensors(which)[-1].any() for which in range(second.sets)), "nothing was written yet"


@given(sets=st.integers(1, MOST_SETS), outputs=st.integers(0, 1 << 31), cache=CACHES)
def test_outputs_that_are_written_in_turn_fit_into_a_part_of_the_cache(sets: int, outputs: int, cache: int) -> None:
    found = output_sets(sets, outputs, cache)
    assert 1 <= found <= sets
    assert found == 1 or found * outputs <= cache / 32


def test_runs_read_their_own_inputs_and_write_fewer_outputs_in_turn() -> None:
    case = make_case(chain(1000, ["neg"]), 0)
    memory = TimingMemory(case, MIB, Arena())
    inputs, outputs = memory.addresses.T
    assert memory.output_sets == MIB // 32 // 4000
    assert memory.sets % memory.output_sets == 0
    assert len(set(inputs)) == memory.sets
    assert len(set(outputs)) == memory.output_sets
    assert (outputs == np.tile(outputs[: memory.output_sets], memory.sets // memory.output_sets)).all()


def test_inputs_that_some_run_changed_are_noticed_by_the_outputs_that_it_wrote() -> None:
    memory = TimingMemory(make_case(chain(1000, ["neg"]), 0), MIB, Arena())
    memory.tensors(3 + memory.output_sets)[0][7] += 1
    assert [which for which in range(memory.output_sets) if not memory.is_intact(which)] == [3]
    memory.restore_all(0xFF)
    assert all(map(memory.is_intact, range(memory.output_sets)))


@pytest.mark.parametrize("wrong", [None, 0, 1, 4])
def test_runs_that_others_wrote_over_are_judged(wrong: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A visit of five runs, of which one may be wrong, whichever it is."""
    monkeypatch.setattr(late_checks, "MORE_SECONDS", 60.0)
    case = make_case(chain(1000, ["neg"]), 0)
    memory = TimingMemory(case, MIB, Arena())
    runs = Runs(memory, case.graph.written_bytes, 2)

    def write(run: int, error: float = 0.0) -> None:
        given, found = memory.tensors(run % memory.output_sets)
        found[...] = -given + error

    def visit(candidate: int, first: int, errors: Sequence[float]) -> None:
        for run, error in enumerate(errors, first):
            write(run, error)
        runs.note(candidate, first, len(errors))
        runs.look(candidate, first, len(errors), {})

    assert memory.output_sets >= 5
    visit(0, 3, [float(k == wrong) for k in range(5)])
    visit(1, 3, [0.0] * (memory.output_sets + 2))
    again: Counter[int] = Counter()

    def run(candidate: int) -> None:
        again[candidate] += 1
        write(0)

    verdicts = review(case, memory, runs, {0: {}, 1: {}}, {0: "own", 1: "own"}, run, lambda _: None)
    assert list(verdicts) == ([] if wrong is None else [0])
    assert again[0] == 1 + late_checks.LEAST_RUNS - 5, "finalists of few runs run some more"
    if wrong is not None:
        assert "wrong when timed" in verdicts[0].problem


def test_a_finalist_that_is_wrong_once_more_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the runs that follow is wrong, no timed one was."""
    monkeypatch.setattr(late_checks, "MORE_SECONDS", 60.0)
    case = make_case(chain(1000, ["neg"]), 0)
    memory = TimingMemory(case, MIB, Arena())
    runs = Runs(memory, case.graph.written_bytes, 1)
    ran = 0

    def run(candidate: int) -> None:
        nonlocal ran
        ran += 1
        given, found = memory.tensors(0)
        found[...] = -given + (ran == 4)

    verdicts = review(case, memory, runs, {0: {}}, {0: "own"}, run, lambda _: None)
    assert list(verdicts) == [0]


def test_outputs_that_take_an_input_have_sets_of_their_own() -> None:
    graph = chain(1000, ["neg"])
    donating = replace(graph, outputs=tuple(replace(o, donates=0) for o in graph.outputs))
    memory = TimingMemory(make_case(donating, 0), MIB, Arena())
    assert memory.output_sets == memory.sets > 1


def test_an_arena_grows_where_one_set_is_more_than_a_cache() -> None:
    arena = Arena()
    assert arena.take(MIB, MIB).bytes.size == MOST_COLD * MIB
    assert arena.take(20 * MIB, MIB).bytes.size == 20 * MIB
    assert arena.take(MIB, MIB).bytes.size == 20 * MIB


@pytest.mark.parametrize("is_small", [True, False])
def test_the_case_of_the_whole_graph_stays_while_its_segments_come_and_go(
    monkeypatch: pytest.MonkeyPatch, is_small: bool
) -> None:
    """A search checks plans of the whole graph at its beginning and at its end."""
    cases: OrderedDict[tuple[str, int], cpu_bench.CpuCase] = OrderedDict()
    monkeypatch.setattr(cpu_bench, "_cases", cases)
    whole, *segments = (print_graph(chain(100 + k, ["neg"] * (1 if k else 5))) for k in range(6))
    monkeypatch.setattr(cpu_bench, "MOST_KEPT_BYTES", 800 if is_small else 799)
    first = cpu_bench._prepare(whole, 0)
    for text in segments:
        cpu_bench._prepare(text, 0)
        assert len(cases) <= cpu_bench.MOST_CASES
    assert (cpu_bench._prepare(whole, 0) is first) == is_small
    assert [text for text, *_ in cases][-2:] == [segments[-1], whole]
