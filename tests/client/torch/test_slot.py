"""Slots and back ends by themselves: threads that come late, forks, options."""

import itertools
import os
import signal
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

# ruff: noqa: E402  PyTorch is an extra
from fuseplan_client.cuda.driver import PassingError
from fuseplan_client.cuda.program import CapturedError
from fuseplan_client.torch import slot as slot_module
from fuseplan_client.torch.asking import Asker, Question
from fuseplan_client.torch.backend import Backend, fuseplan
from fuseplan_client.torch.backward import MOST_FOLLOWED
from fuseplan_client.torch.devices import CpuDevice
from fuseplan_client.torch.group import PlannedGroup
from fuseplan_client.torch.slot import MOST_UNFIT, TIMED_CALLS, Offered, Progress, Slot, Verdict
from fuseplan_client.torch.updates import Update, updating
from fuseplan_client.torch.whole import Race

from benchmarks.models.row import milestones


def slot_of(replaced: Callable[[Sequence[Any]], Any]) -> Slot:
    return Slot(replaced, lambda *_: None)


def plus(number: float) -> Callable[[Sequence[Any]], Any]:
    return lambda args: (args[0] + number,)


def test_a_call_that_comes_late_does_not_run_a_plan_that_was_not_compared() -> None:
    """It took the slot's function while an earlier plan was timed."""
    slot, x = slot_of(plus(1)), torch.zeros(4)
    slot.offer(Offered(plus(1), "first"))
    slot.run((x,))
    late = slot.run  # times the first plan
    slot._refuse(slot._judged, "slower", "")  # type: ignore[arg-type]
    wrong = Offered(plus(7), "second")
    slot.offer(wrong)
    for _ in range(2 * TIMED_CALLS):
        assert torch.equal(late((x,))[0], x + 1)
    assert not wrong.is_checked
    assert torch.equal(slot.run((x,))[0], x + 1)
    assert slot.reason.startswith("wrong")


def test_what_a_group_rounds_counts_in_results_and_in_what_they_update() -> None:
    """By output, wherever its values are looked at: outputs that belong into inputs are compared behind the others."""

    def made(off: Sequence[float]) -> Callable[[Sequence[Any]], Any]:
        return updating(lambda args: tuple(args[0] * (1 + o) for o in off), updates)

    x, updates = torch.randn(64) + 3, (Update(0, 1), Update(2, 0))
    half, own = torch.bfloat16, torch.float32
    for rounded, wrong in (([half, own, half], False), ([own, own, half], True), ([half, half, own], True), ([], True)):
        slot = Slot(made((0, 0, 0)), lambda *_: None, updates=updates, rounded=rounded)
        slot.offer(Offered(made((1e-3, 0, 1e-3)), "halves"))
        slot.run((x.clone(), torch.zeros(64)))
        assert slot.reason.startswith("wrong") is wrong, (rounded, slot.reason)


def test_a_slot_that_another_thread_judges_runs_what_it_ran_before() -> None:
    slot, x = slot_of(plus(1)), torch.zeros(4)
    called: list[int] = []

    def planned(args: Sequence[Any]) -> Any:
        called.append(1)
        return (args[0] + 1,)

    slot.offer(Offered(planned))
    taken = threading.Event()
    done = threading.Event()

    def hold() -> None:
        with slot._judging:
            taken.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait(30)
    assert torch.equal(slot.run((x,))[0], x + 1)
    assert not called
    done.set()
    holder.join()


@pytest.mark.timeout(60)
def test_the_child_of_a_fork_waits_for_no_lock_that_its_parent_held() -> None:
    """Slots, races and the thread that asks: a thread of the parent has each lock while it forks, and is not there in
    the child."""
    slot, race, x = slot_of(plus(1)), Race(), torch.zeros(4)
    slot.offer(Offered(plus(1)))
    asker = Asker(lambda: "http://127.0.0.1:9")
    weight = torch.ones(4, requires_grad=True)
    held = [slot._judging, race._lock, asker._lock]
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        for lock in held:
            lock.acquire()
        taken.set()
        done.wait(30)
        for lock in held:
            lock.release()

    holder = threading.Thread(target=hold)
    holder.start()
    taken.wait(30)
    child = os.fork()
    if not child:
        signal.alarm(20)  # ends the child where it waits for ever
        slot.run((x,))
        race.call(dict.fromkeys((True, False), lambda w: w * 2), (weight,)).sum().backward()
        asker.ask(Question(lambda: [{}], lambda *_: None, lambda _: None))
        os._exit(0 if asker._process == os.getpid() else 1)
    done.set()
    holder.join()
    assert os.waitpid(child, 0)[1] == 0


def test_a_child_that_asked_nothing_does_not_wait_for_its_parents_plans() -> None:
    asker = Asker(lambda: "http://127.0.0.1:9")
    asker._all_answered.clear()
    child = os.fork()
    if not child:
        signal.alarm(20)
        os._exit(0 if asker.wait(30) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_passes_that_are_never_asked_for_are_let_go() -> None:
    """A model may be called again and again with gradients on, and never be trained."""
    race, weight = Race(), torch.ones(4, requires_grad=True)
    sides = dict.fromkeys((True, False), lambda w: w * 2)
    results = [race.call(sides, (weight,)) for _ in range(3 * MOST_FOLLOWED)]
    assert len(race._timer._passes) == MOST_FOLLOWED
    assert len(weight._backward_hooks or ()) == MOST_FOLLOWED, "of those that are followed"
    race.restart()
    assert not weight._backward_hooks
    assert results[0].requires_grad


WRONG: dict[str, dict[str, Any]] = {
    "seconds: expected a number from 0 on, got -1": {"seconds": -1},
    "seconds: expected a number from 0 on, got nan": {"seconds": float("nan")},
    "seconds: expected a number from 0 on, got '5'": {"seconds": "5"},
    "least_ops: expected a number from 1 on, got 0": {"least_ops": 0},
    "server: expected an address, got 8080": {"server": 8080},
    "until: expected eager or inductor, got 'plan'": {"until": "plan"},
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_options_are_said_to_be(message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Backend(**WRONG[message])


def test_graphs_with_equal_options_have_one_back_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch asks for each graph: a thread, and a server, for each would be many."""
    seen: list[Backend] = []
    monkeypatch.setattr(Backend, "__call__", lambda self, module, examples: seen.append(self))
    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    options = {"server": "http://127.0.0.1:9", "server_keys": ["a", "b"], "seconds": 3}
    for given in (options, dict(reversed(options.items())), {**options, "seconds": 4}):
        fuseplan(graph, (), options=given)
    assert seen[0] is seen[1]
    assert seen[0] is not seen[2]


class Noted:
    """Takes questions, and answers none."""

    def __init__(self) -> None:
        self.questions: list[Question] = []

    def ask(self, question: Question) -> None:
        self.questions.append(question)


def test_plans_are_asked_for_as_many_threads_as_the_models_thread_has() -> None:
    """The thread that asks has a number of its own."""
    torch._dynamo.reset()
    noted, before = Noted(), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        compiled = torch.compile(lambda x: (x.exp() * 2).tanh(), backend=Backend(asker=noted), dynamic=False)
        compiled(torch.randn(30))
    finally:
        torch.set_num_threads(before)
    targets: list[str] = []

    def work() -> None:
        torch.set_num_threads(2)
        targets.append(noted.questions[0].requests()[-1]["target"])

    asking = threading.Thread(target=work)
    asking.start()
    asking.join()
    assert targets == ["cpu:1"]


def test_the_other_ways_of_a_group_share_as_many_seconds_as_the_group_has() -> None:
    """However many parts a way has, the search of all takes twice as long as that of the group, at the most."""
    torch._dynamo.reset()
    noted = Noted()
    heads = torch.randn(1, 2, 16, 8)
    weight = torch.randn(8, 8)

    def block(x: torch.Tensor) -> torch.Tensor:
        mixed = torch.nn.functional.scaled_dot_product_attention(x.tanh(), x.sin() + 1, (x.cos() * 2).exp())
        return (mixed.exp().sin() @ weight).tanh() * 2

    compiled = torch.compile(block, backend=Backend(asker=noted, seconds=90), dynamic=False)
    with torch.no_grad():
        compiled(heads)
        assert [question.seconds for question in noted.questions] == [(10, 90)]
        ended = 0
        while ended < len(noted.questions):
            for question in noted.questions[ended:]:
                question.ended()
                ended += 1
            for _ in range(5):
                compiled(heads)
    parts = [question.seconds[-1] for question in noted.questions[1:]]
    assert len(parts) > 3, "of both ways"
    assert sum(parts) == pytest.approx(90)


def test_a_comparison_that_fails_is_the_plans_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be no memory for it: the call gives what it gave before, and the plan is not tried again."""

    def broken(*_: Any) -> str:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(slot_module, "disagreement", broken)
    slot, x = slot_of(plus(1)), torch.zeros(4)
    slot.offer(Offered(plus(1)))
    for _ in range(3):
        assert torch.equal(slot.run((x,))[0], x + 1)
    assert (slot.state, slot.reason) == (
        "refused",
        "unusable: it cannot be compared: OutOfMemoryError: out of memory",
    )


@pytest.mark.parametrize("special", ["an input", "a result"])
def test_plans_are_not_judged_by_what_is_no_number(special: str) -> None:
    """There PyTorch's own kernels differ from each other; the next call judges."""

    def replaced(args: Sequence[Any]) -> Any:
        return (args[0].nan_to_num(7.0) + (float("inf") if special == "a result" and args[0].isnan().any() else 0),)

    told = list[Any]()
    slot = Slot(replaced, lambda *refusal: told.append(refusal))
    slot.offer(Offered(lambda args: (args[0].nan_to_num(5.0),)))
    x = torch.tensor([1.0, float("nan")])
    for _ in range(3):
        assert torch.equal(slot.run((x,))[0], replaced((x,))[0])
    assert slot.state == "waiting"
    assert slot.is_judging
    for _ in range(2 * TIMED_CALLS + 1):
        slot.run((torch.ones(2),))
    assert slot.verdicts, "it was compared, and timed"
    slot.offer(Offered(plus(1), "wrong"))
    for _ in range(MOST_UNFIT):
        slot.run((x,))
    assert told[-1][1] == "unfit"
    slot.offer(Offered(plus(1), "wrong"))
    slot.run((torch.ones(2),))
    assert told[-1][1] == "wrong"


def test_a_plan_without_room_beside_what_ran_before() -> None:
    """Memory goes to what ran before."""
    held: list[weakref.ref[torch.Tensor]] = []

    def planned(args: Sequence[Any]) -> Any:
        found = args[0] + 1
        held.append(weakref.ref(found))
        return (found,)

    def replaced(args: Sequence[Any]) -> Any:
        if held and held[-1]() is not None:
            raise torch.OutOfMemoryError("out of memory")
        return (args[0] + 1,)

    slot, x = slot_of(replaced), torch.zeros(4)
    slot.offer(Offered(planned))
    for _ in range(3):
        assert torch.equal(slot.run((x,))[0], x + 1)
    assert len(held) == 1
    assert slot.reason.startswith("unusable: there is no memory")


def test_passing_faults_of_an_accepted_plan_are_not_its_end() -> None:
    """Memory that is short for a moment, a capture that the program broke: the call runs what the plan replaced."""
    fails: list[Exception] = []

    def planned(args: Sequence[Any]) -> Any:
        if fails:
            raise fails.pop()
        return (args[0] + 1,)

    slot, x = slot_of(plus(1)), torch.zeros(4)
    slot.offer(Offered(planned))
    slot.device = Instant()
    while slot.state != "planned":
        slot.run((x,))
    for error in (torch.OutOfMemoryError("no memory"), PassingError("901"), CapturedError("captured")):
        fails.append(error)
        assert torch.equal(slot.run((x,))[0], x + 1)
        assert slot.state == "planned"
    for _ in range(3 * MOST_UNFIT):
        fails.append(CapturedError("captured"))
        slot.run((x,))
    assert slot.state == "planned", "a program may capture as often as it likes"
    fails.append(RuntimeError("a launch failed"))
    assert torch.equal(slot.run((x,))[0], x + 1)
    assert slot.state == "refused"


class Capturing(CpuDevice):
    """A device that captures calls, or fails them, by turns."""

    def __init__(self) -> None:
        self.is_on = True

    def is_capturing(self) -> bool:
        return self.is_on


def test_plans_are_asked_for_behind_a_call_that_ran() -> None:
    """Not of one that was captured, where nothing can be looked at, nor of one that raised."""
    graph = torch.fx.symbolic_trace(lambda x: torch.ops.aten.reciprocal.default(x))
    asked, device, fails = list[Any](), Capturing(), [ValueError("the program's")]

    def replaced(module: Any, args: Sequence[Any]) -> Any:
        def call(given: Sequence[Any]) -> Any:
            if not device.is_on and fails:
                raise fails.pop()
            return module(*given)

        return call

    def slot(call: Any) -> Slot:
        return Slot(call, lambda *_: None, device=device)

    group = PlannedGroup(graph, [None], False, "forward 0", (), slot, lambda *what: asked.append(what), replaced)
    x = torch.full((4,), 2.0)
    for _ in range(2):
        assert torch.equal(group(x), x / 4)
    device.is_on = False
    with pytest.raises(ValueError, match="the program's"):
        group(x)
    assert not asked
    assert not group.slots
    for _ in range(3):
        assert torch.equal(group(x), x / 4)
    assert len(asked) == 1
    assert len(group.slots) == 1


class Instant(CpuDevice):
    """A device on which every call takes as long as any other, but plans half of it."""

    def __init__(self) -> None:
        self.sides = itertools.cycle((1.0, 2.0))

    def between_us(self, start: Any, end: Any) -> float:
        return next(self.sides)


def test_a_backward_pass_that_is_captured_is_not_timed() -> None:
    """Its hooks are of a race that was on before: an event or a wait would break the capture."""

    class Captured(CpuDevice):
        capturing = False

        def is_capturing(self) -> bool:
            return self.capturing

        def mark(self) -> Any:
            assert not self.capturing
            return super().mark()

    device = Captured()
    race, weight = Race(device), torch.ones(4, requires_grad=True)
    sides = dict.fromkeys((True, False), lambda w: w * 2)
    first, second = (race.call(sides, (weight,)) for _ in range(2))
    device.capturing = True
    first.sum().backward()
    device.capturing = False
    second.sum().backward()
    assert sum(map(len, race._timer.samples().values())) == 1


def test_when_plans_were_of_use_and_when_most_was_gained() -> None:
    """Two groups: the first plan that is faster, and the one with which 95 % of the last gain is there."""

    def judged(*verdicts: tuple[float, float, float, bool]) -> Slot:
        slot = slot_of(plus(1))
        slot.verdicts = [Verdict(*v) for v in verdicts]
        return slot

    one = judged((12.0, 80.0, 100.0, True), (40.0, 50.0, 80.0, True), (41.0, 60.0, 50.0, False))
    other = judged((30.0, 300.0, 200.0, False), (60.0, 199.0, 200.0, True))
    assert milestones([one, other], 10.0) == (2.0, 30.0)
    assert milestones([other], 10.0) == (50.0, 50.0)
    assert milestones([judged((30.0, 300.0, 200.0, False)), judged()], 10.0) == (None, None)


def test_a_plan_of_parts_is_there_once_its_own_plans_are() -> None:
    inside, x = slot_of(plus(1)), torch.zeros(4)
    inside.device = Instant()
    inside.offer(Offered(plus(1), arrived=20.0))
    while inside.state != "planned":
        inside.run((x,))

    class OfOne:
        left = "products"
        slots: Sequence[Slot] = (inside, slot_of(plus(1)))

        def progress(self) -> Progress:
            return "ready"

    assert Offered(plus(1), arrived=5.0).there == 5.0
    assert Offered(plus(1), parts=OfOne(), arrived=5.0).there == 20.0
    (verdict,) = inside.verdicts
    assert (verdict.arrived, verdict.is_taken) == (20.0, True)
