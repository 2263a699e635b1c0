"""The space of a family's schedules: what makes no difference is one value, and is measured once."""

from codegen.families import FAMILIES
from codegen.schedule import Choices
from fusion_ir import building as B
from fusion_ir.ops import make, make_input
from scheduler.segments.atom_cuts import cut
from scheduler.segments.enumeration import Candidate
from scheduler.segments.segment_mask import SegmentMask
from scheduler.tuning.schedule_space import ScheduleSpace
from scheduler.tuning.trials import Ledger
from tests.support.devices import CPU_DEVICE
from tests.support.kernels import dense, graph_of
from tests.unit.scheduler.fakes import DEVICE, FakeBench, FakeFamily, Memory, families

CHOICES: Choices = {"lanes": (16, 32), "tile": (64, 128, 256), "store": ("stream", "plain")}
FIRST = "lanes=16,tile=128,store=plain"
SPEC = dense(512, 1024)
GRAPH = graph_of((SPEC,), make("exp", [make_input(0, SPEC)]))


def test_what_makes_no_difference_is_no_choice() -> None:
    family = FakeFamily("f", schedules=(FIRST,), beyond=CHOICES, idle=frozenset({"tile"}))
    space = ScheduleSpace(family, GRAPH, f"f{{{FIRST}}}", DEVICE)
    assert space.choices == {"lanes": (16, 32), "tile": (64,), "store": ("stream", "plain")}
    assert space.size == len(list(space)) == 4
    assert space.point(f"f{{{FIRST}}}") == "f{lanes=16,tile=64,store=plain}"
    assert space.point("f{lanes=64,tile=64,store=plain}") is None
    assert space.point("f{lanes=16}") is None


def test_a_family_without_choices_has_no_space() -> None:
    space = ScheduleSpace(FakeFamily("f"), GRAPH, "f{default}", DEVICE)
    assert (space.size, list(space), space.point("f{default}")) == (0, [], None)


def test_nothing_is_judged_when_it_is_late() -> None:
    """A part of a space is none: what was not judged might be what was."""
    family = FakeFamily("f", schedules=(FIRST,), beyond=CHOICES)
    for calls in range(9):
        asked = iter(range(calls, -100, -1))
        space = ScheduleSpace(family, GRAPH, f"f{{{FIRST}}}", DEVICE, lambda asked=asked: next(asked) <= 0)
        assert (space.whole, space.size) == ((True, 12) if calls >= 7 else (False, 0)), calls
        assert next(asked) >= -1, "it is asked before each kernel, and no more when it said so"


def test_the_space_of_a_segment_is_judged_again_when_there_is_time() -> None:
    kinds = families(schedules=(FIRST,), beyond=CHOICES)
    ledger = Ledger(DEVICE, kinds, Memory(), FakeBench(seed=1, slowest=100.0), 0)
    candidate = ledger.acceptor.ask(cut(GRAPH, ledger.acceptor.computable), SegmentMask(1, 1))
    assert isinstance(candidate, Candidate)
    ledger.measure(candidate, 8)
    assert not ledger.extend(candidate, 8, lambda: True)
    assert ledger.extend(candidate, 8)


def test_points_of_a_softmax_are_different_kernels() -> None:
    """Rows are never cut into tiles, and everything is read more than once."""
    family, graph = FAMILIES["normalization"], graph_of((SPEC,), B.softmax(make_input(0, SPEC), 1))
    space = ScheduleSpace(family, graph, family.space(graph, CPU_DEVICE)[0], CPU_DEVICE)
    assert len(space.choices["tile"]) == len(space.choices["fetch"]) == 1
    kernels = {family.emit(graph, point, CPU_DEVICE).identity for point in space}
    assert len(kernels) > 0.9 * space.size
    assert {space.point(s) for s in family.space(graph, CPU_DEVICE)} <= {None, *space}


def test_a_kernel_is_measured_once_whatever_its_schedules() -> None:
    bench = FakeBench(seed=1)
    kinds = families(
        schedules=(FIRST, "lanes=16,tile=64,store=plain", "lanes=32,tile=64,store=plain"),
        beyond=CHOICES,
        idle=frozenset({"tile"}),
    )
    ledger = Ledger(DEVICE, kinds, Memory(), bench, 0)
    candidate = ledger.acceptor.ask(cut(GRAPH, ledger.acceptor.computable), SegmentMask(1, 1))
    assert isinstance(candidate, Candidate)
    entry = ledger.logs.open(candidate)
    held = set[str]()
    while entry.pending or ledger.extend(candidate, 8):
        ledger.measure(candidate, 8)
        assert entry.winner
        held.add(entry.kernels[entry.winner].entry)
    assert len(set(bench.calls)) == 5, "four kernels, and that of the other family"
    assert all(bench.calls.count(e) == 1 for e in bench.calls if e not in held)


def test_another_spelling_of_what_was_tried_is_not_measured() -> None:
    bench = FakeBench(seed=1)
    kinds = families(schedules=(FIRST,), beyond=CHOICES, idle=frozenset({"tile"}))
    ledger = Ledger(DEVICE, kinds, Memory(), bench, 0)
    candidate = ledger.acceptor.ask(cut(GRAPH, ledger.acceptor.computable), SegmentMask(1, 1))
    assert isinstance(candidate, Candidate)
    ledger.measure(candidate, 2)
    entry, other = ledger.logs.open(candidate), ("fused", "fused{lanes=16,tile=64,store=plain}")
    before = len(bench.calls)
    entry.pending.append(other)
    ledger.measure(candidate, 8)
    assert len(bench.calls) == before
    assert entry.tried[other] is entry.tried["fused", f"fused{{{FIRST}}}"]
    assert entry.relative[other] == entry.relative["fused", f"fused{{{FIRST}}}"]
