"""The ledger of measurements: which schedule wins on a machine whose speed changes, and which rows do not count."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from codegen.families import FAMILIES
from codegen.hardware.gpus import specified
from codegen.kernel import Kernel
from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.dtype import bf16, f32
from fusion_ir.ops import make, make_input
from fusion_ir.records import Device, Measurement, Status
from scheduler.cost.roofline_cpu import ASSUMED
from scheduler.segments.atom_cuts import cut
from scheduler.segments.enumeration import Candidate, find_candidates
from scheduler.tuning.trial_logs import HOPELESS
from scheduler.tuning.trials import ALIKE, LIKELY, Ledger
from tests.support.devices import CPU_DEVICE
from tests.support.kernels import dense, graph_of
from tests.unit.scheduler.fakes import DEVICE, FakeBench, Memory, families

SPEC = dense(512, 1024)
SCHEDULES = ("a", "b", "c", "d", "e")


@dataclass
class Tired(FakeBench):
    """Every race is run on a machine `slower` times as slow as the one before."""

    slower: float = 2.0
    races: list[list[str]] = field(default_factory=list)

    def measure(
        self, segment: Graph, segment_key: str, kernels: Sequence[Kernel], *, seed: int = 0
    ) -> list[Measurement]:
        scale = self.slower ** len(self.races)
        self.races.append([k.schedule for k in kernels])
        rows = super().measure(segment, segment_key, kernels, seed=seed)
        return [m.model_copy(update={"samples_us": tuple(scale * t for t in m.samples_us)}) for m in rows]


def ledger_of(bench: FakeBench | None, costs: Memory) -> tuple[Ledger, Candidate]:
    ledger = Ledger(DEVICE, families(schedules=SCHEDULES), costs, bench, 0)
    atoms = cut(graph_of((SPEC,), make("exp", [make_input(0, SPEC)])), ledger.acceptor.computable)
    candidate = ledger.acceptor.ask(atoms, atoms.piece(1))
    assert isinstance(candidate, Candidate)
    return ledger, candidate


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("slower", [0.5, 2.0])
def test_the_fastest_wins_however_fast_the_machine_is_meanwhile(batch: int, slower: float) -> None:
    for seed in range(8):
        bench, costs = Tired(seed=seed, slower=slower), Memory()
        ledger, candidate = ledger_of(bench, costs)
        while ledger.has_more(candidate):
            ledger.measure(candidate, batch)
        entry = ledger.logs.open(candidate)
        assert entry.winner
        factors = {v: bench.factor(ledger.kernel(candidate, v).entry) for v in entry.tried}
        assert factors[entry.winner] <= min(factors.values()) * 1.01, "within what counts as clearly faster"
        assert ledger.measured == len(factors) == 6
        again, candidate = ledger_of(None, costs)
        assert again.logs.open(candidate).winner == entry.winner, "from what was recorded"


def test_emitting_ends_when_it_is_late() -> None:
    """When it is late, emitting ends after one kernel, so that there is a race; the other schedules stay pending."""
    bench = FakeBench()
    ledger, candidate = ledger_of(bench, Memory())
    assert ledger.measure(candidate, 3, is_late=lambda: True) == 1
    assert not bench.expected
    assert ledger.measure(candidate, 3) == 3
    while ledger.has_more(candidate):
        ledger.measure(candidate, 3)
    assert ledger.measured == 6


def test_a_winner_that_fails_later_is_no_winner() -> None:
    bench = FakeBench()
    ledger, candidate = ledger_of(bench, Memory())
    ledger.measure(candidate, 3)
    entry = ledger.logs.open(candidate)
    first = entry.winner
    assert first
    bench.fails = frozenset({first[1]})
    ledger.measure(candidate, 1)
    assert entry.winner
    assert entry.winner != first
    assert entry.tried[first].status is Status.crashed
    assert (ledger.measured, ledger.failed) == (3, 1)
    for family, schedule in [*entry.tried]:
        ledger.reject(candidate, (family, schedule), Status.compile_failed, "no")
    assert entry.best() is None


def test_what_is_not_worth_timing_is_no_failure() -> None:
    ledger, candidate = ledger_of(FakeBench(), Memory())
    ledger.measure(candidate, 3)
    first, second, _ = ledger.logs.open(candidate).tried
    ledger.reject(candidate, first, Status.dropped, "spills")
    assert (ledger.measured, ledger.failed, ledger.dropped) == (2, 0, 1)
    ledger.reject(candidate, second, Status.wrong_result, "off")
    assert (ledger.measured, ledger.failed, ledger.dropped) == (1, 1, 1)


@pytest.mark.parametrize(
    "elsewhere", [{"origin": "imported"}, {"toolchain": "an earlier one"}, {"driver": "another"}], ids=str
)
def test_times_of_elsewhere_say_what_to_try_first(elsewhere: dict[str, str]) -> None:
    """Rows of another machine, compiler or driver set the order of trials and nothing else: none of them is a cost, and
    schedules that failed there are tried here."""
    there, candidate = ledger_of(FakeBench(seed=3), costs := Memory())
    there.measure(candidate, 9)
    best = there.logs.open(candidate).winner
    ((key, rows),) = costs.rows.items()
    costs.rows[key] = [m.model_copy(update=elsewhere) for m in rows]
    here, candidate = ledger_of(FakeBench(seed=4), costs)
    entry = here.logs.open(candidate)
    assert (entry.best(), entry.tried) == (None, {})
    assert entry.pending[0] == best
    assert sorted(entry.pending) == sorted(there.logs.open(candidate).tried)
    own = rows[0].model_copy(update={"samples_us": (1e6,) * 20, "race": "own"})
    costs.rows[key].append(own)
    again, candidate = ledger_of(None, costs)
    assert again.logs.open(candidate).best() == own, "however much faster the others were there"


def test_two_searches_at_once_measure_nothing_twice() -> None:
    """Each takes in what the other recorded since, and both come to the same winner."""
    costs = Memory()
    searches = [ledger_of(FakeBench(seed=5), costs) for _ in range(2)]
    entries = [ledger.logs.open(candidate) for ledger, candidate in searches]
    measured = 0
    while any(entry.pending for entry in entries):
        measured += sum(ledger.measure(candidate, 1) for ledger, candidate in searches)
    assert measured == len(entries[0].tried) == len(entries[1].tried) == 6
    assert entries[0].winner == entries[1].winner


def test_schedules_that_are_gone_are_no_choice() -> None:
    costs = Memory()
    ledger, candidate = ledger_of(FakeBench(), costs)
    ledger.measure(candidate, 2)
    ((key, rows),) = costs.rows.items()
    fast = rows[0].model_copy(update={"samples_us": (0.001,) * 20})
    costs.rows[key] = [
        *rows,
        fast.model_copy(update={"schedule": "fused{old}"}),
        fast.model_copy(update={"family": "old"}),
    ]
    again, candidate = ledger_of(None, costs)
    winner = again.logs.open(candidate).winner
    assert winner
    assert winner in {(m.family, m.schedule) for m in rows}


@dataclass
class Lucky(FakeBench):
    """One schedule takes 4 % less than it should in its first race."""

    lucky: str = ""
    lucky_races: int = 0

    def measure(
        self, segment: Graph, segment_key: str, kernels: Sequence[Kernel], *, seed: int = 0
    ) -> list[Measurement]:
        rows = super().measure(segment, segment_key, kernels, seed=seed)
        if self.lucky_races or not any(self.lucky in k.schedule for k in kernels):
            return rows
        self.lucky_races += 1
        return [
            m.model_copy(update={"samples_us": tuple(0.96 * t for t in m.samples_us)})
            if self.lucky in m.schedule
            else m
            for m in rows
        ]

    def factor(self, entry: str) -> float:
        return {"a": 1.02, "b": 1.00, "c": 1.01, "d": 1.2, "e": 1.3}.get(self.letters.get(entry, ""), 2.0)

    letters: dict[str, str] = field(default_factory=dict)

    def time_us(self, segment: Graph, kernel: Kernel) -> float:
        self.letters[kernel.entry] = kernel.schedule[-2]
        return super().time_us(segment, kernel)


def test_a_near_tie_is_played_off() -> None:
    bench = Lucky(lucky="{a}")
    ledger, candidate = ledger_of(bench, Memory())
    while ledger.logs.open(candidate).pending:
        ledger.measure(candidate, 3)
    assert ledger.logs.open(candidate).winner == ("fused", "fused{a}"), "by luck"
    before = len(bench.calls)
    assert ledger.play_off(candidate)
    assert ledger.logs.open(candidate).winner == ("fused", "fused{b}")
    assert {bench.letters[e] for e in bench.calls[before:]} == {"a", "b", "c"}, "nobody else came near"


def test_nothing_is_played_off_where_nothing_is_new() -> None:
    costs = Memory()
    ledger, candidate = ledger_of(Lucky(), costs)
    assert not ledger.play_off(candidate), "nothing was timed yet"
    ledger.measure(candidate, 9)
    bench = Lucky()
    again, candidate = ledger_of(bench, costs)
    assert not again.play_off(candidate)
    assert not bench.calls


def test_what_comes_next_is_announced() -> None:
    bench = Lucky()
    ledger, candidate = ledger_of(bench, Memory())
    ledger.measure(candidate, 2)
    announced = list(bench.expected)
    ledger.measure(candidate, 2)
    assert set(bench.calls) - set(bench.calls[:2]) <= set(announced)
    assert len(announced) == LIKELY


def test_first_races_of_others_are_announced_where_these_come_next() -> None:
    bench = Lucky()
    ledger, candidate = ledger_of(bench, Memory())
    ledger.measure(candidate, 2, then=(candidate,))
    assert len(bench.expected) == ledger.hopeful(candidate)
    assert bench.expected[0] == bench.calls[0]


def test_tiles_come_first_where_something_lies_across() -> None:
    """`pointwise` gathers there: 24 times as slow as `transpose` when it was measured."""
    specs = dense(4096, 2560), dense(2560, 4096)
    turned = build.permute(make_input(1, specs[1]), (1, 0))
    graph = graph_of(specs, make("add", [make_input(0, specs[0]), turned]))
    ledger = Ledger(CPU_DEVICE, FAMILIES, Memory(), None, 0)
    atoms = cut(graph, ledger.acceptor.computable)
    candidate = ledger.acceptor.ask(atoms, atoms.piece((1 << len(atoms)) - 1))
    assert isinstance(candidate, Candidate)
    assert "pointwise" in candidate.families
    chosen = ledger.choice(candidate)
    assert chosen is not None
    assert chosen[0] == "transpose"


@dataclass
class Spells(Lucky):
    """A bench whose races numbered in `spells` take 1.5 times as long, and kernels in `favoured` 0.85 of that."""

    spells: tuple[int, ...] = ()
    favoured: str = ""
    raced: int = 0

    def measure(
        self, segment: Graph, segment_key: str, kernels: Sequence[Kernel], *, seed: int = 0
    ) -> list[Measurement]:
        rows = FakeBench.measure(self, segment, segment_key, kernels, seed=seed)
        self.raced += 1
        if self.raced not in self.spells:
            return rows
        scales = [1.5 * (0.85 if m.schedule[-2] in self.favoured else 1.0) for m in rows]
        return [
            m.model_copy(update={"samples_us": tuple(scale * t for t in m.samples_us)})
            for m, scale in zip(rows, scales, strict=True)
        ]


# True times: a 1.02, b 1.00, c 1.01, d 1.2, e 1.3.
@pytest.mark.parametrize("spells", [(1,), (2,), (3,), (1, 3), (2, 4)])
@pytest.mark.parametrize("favoured", ["a", "c", "ac", "d"])
@pytest.mark.parametrize("batch", [2, 3])
def test_what_wins_only_in_a_spell_does_not_win(spells: tuple[int, ...], favoured: str, batch: int) -> None:
    bench = Spells(spells=spells, favoured=favoured)
    ledger, candidate = ledger_of(bench, Memory())
    while ledger.has_more(candidate):
        ledger.measure(candidate, batch)
    ledger.play_off(candidate)
    assert ledger.logs.open(candidate).winner in (("fused", "fused{b}"), ("fused", "fused{c}")), "within one per cent"


def test_what_crashes_when_it_is_timed_again_is_not_timed_for_ever() -> None:
    bench = Spells(spells=(2,), favoured="d")
    ledger, candidate = ledger_of(bench, Memory())
    ledger.measure(candidate, 1)
    ledger.measure(candidate, 4)
    assert ledger.logs.open(candidate).doubted
    bench.fails = frozenset(SCHEDULES)
    while ledger.has_more(candidate):
        ledger.measure(candidate, 2)
        assert bench.raced < 8


def test_what_fails_in_a_spell_failed() -> None:
    bench = Spells(spells=(2, 4), favoured="d")
    ledger, candidate = ledger_of(bench, Memory())
    entry = ledger.logs.open(candidate)
    again = ("fused", "fused{c}")
    for count in (1, 2, 1):
        ledger.measure(candidate, count)
    assert entry.winner == ("fused", "fused{b}")
    assert entry.tried[again].status is Status.ok
    entry.doubted.append(again)
    bench.fails = frozenset({again[1]})
    ledger.measure(candidate, 1)
    assert bench.raced == 4
    assert entry.tried[again].status is Status.crashed


def test_a_machine_that_stays_slower_is_another_machine() -> None:
    """The second race in a row that is slower counts, and nothing is timed for ever."""
    bench = Spells(spells=tuple(range(2, 40)))
    ledger, candidate = ledger_of(bench, Memory())
    while ledger.has_more(candidate):
        ledger.measure(candidate, 1)
        assert bench.raced < 12
    assert ledger.logs.open(candidate).winner in (("fused", "fused{b}"), ("fused", "fused{c}"))


@pytest.mark.parametrize("device", [CPU_DEVICE, specified("h200", ""), specified("a100", "")], ids=lambda d: d.name)
def test_what_nothing_was_tried_on_gets_what_would_be_tried_first(device: Device) -> None:
    """A choice asks families until one is sure to be the fastest; an entry ranks all that accept. What families only
    seem to accept is never in a cover."""
    spec = dense(64, 256, dtype=bf16)
    x, y = make_input(0, spec), make_input(1, spec)
    scores = build.matmul(x, build.permute(y, [1, 0]))
    normal = build.rms_norm(build.cast(build.add(scores, build.permute(scores, [1, 0])), f32))
    ledger = Ledger(device, FAMILIES, Memory(), None, 0)
    atoms = cut(graph_of((spec, spec), normal, build.sum_(scores, [0])), ledger.acceptor.computable)
    found = find_candidates(atoms, lambda piece: ledger.acceptor.ask(atoms, piece))
    taken = [c for c in found.accepted.values() if len(c.families)]
    assert len(taken) > 20
    assert all(ledger.model.predicted_us(c) == math.inf for c in found.accepted.values() if c not in taken)
    for i, candidate in enumerate(taken):
        if i % 2:
            ledger.look_closer(candidate)
        chosen = ledger.choice(candidate)
        assert not ledger.logs.is_open(candidate) and ledger.time_us(candidate) is None
        assert chosen == ledger.logs.open(candidate).pending[0] == ledger.choice(candidate)


def test_a_family_that_cannot_beat_what_was_measured_is_not_tried() -> None:
    """`naive` sums a whole row for each element of it."""
    spec = dense(2, 1 << 15)
    x = make_input(0, spec)
    graph = graph_of((spec,), build.div(x, build.sum_(x, (1,), keepdims=True)))
    device = DEVICE.model_copy(update={"ceilings": ASSUMED["cpu"]})
    for stored in (False, True):
        costs = Memory()
        ledger = Ledger(device, FAMILIES, costs, FakeBench(), 0)
        atoms = cut(graph, ledger.acceptor.computable)
        candidate = ledger.acceptor.ask(atoms, atoms.piece((1 << len(atoms)) - 1))
        assert isinstance(candidate, Candidate)
        assert "naive" in candidate.families
        assert any(f == "naive" for f, _ in ledger.logs.open(candidate).pending)
        ledger.measure(candidate, 1)
        assert HOPELESS * (ledger.time_us(candidate) or 0.0) < ledger.model.family_bound_us(candidate, "naive")
        if stored:
            ledger = Ledger(device, FAMILIES, costs, None, 0)
        assert ledger.logs.open(candidate).pending
        assert not any(f == "naive" for f, _ in ledger.logs.open(candidate).pending)


def test_what_cannot_be_emitted_for_one_reason_again_and_again_is_let_be() -> None:
    for reasons in (["v1 is read elsewhere"] * 9, [f"reason {k}" for k in range(9)]):
        ledger = Ledger(DEVICE, families(schedules=tuple("abcdefghi")), Memory(), None, 0)
        atoms = cut(graph_of((SPEC,), make("exp", [make_input(0, SPEC)])), ledger.acceptor.computable)
        candidate = ledger.acceptor.ask(atoms, atoms.piece(1))
        assert isinstance(candidate, Candidate)
        tried = 0
        while fused := [v for v in ledger.logs.open(candidate).pending if v[0] == "fused"]:
            ledger.reject(candidate, fused[0], Status.rejected, reasons[tried])
            tried += 1
        assert tried == (ALIKE if len(set(reasons)) == 1 else 9)
        assert ledger.choice(candidate) == ("one", "one{only}"), "another family is tried"
