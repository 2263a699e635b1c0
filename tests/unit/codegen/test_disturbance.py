"""Samples that others disturbed are taken again, and what stays disturbed is counted."""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from codegen.timing.disturbance import DISTURBED, MOST_REPEATS, Disturbance, RunQueue, Steal
from codegen.timing.surroundings import CpuWatch


class Scripted(RunQueue):
    """A clock, and visits of one second of which others take so much."""

    def __init__(self, *taken: float) -> None:
        super().__init__(Path("/nowhere"))
        self.taken: Iterator[float] = iter(taken)
        self.now = self.waited = 0.0
        self.made = 0

    def waited_seconds(self) -> float | None:
        return self.waited

    def clock(self) -> float:
        return self.now

    def visit(self) -> Sequence[float]:
        self.now += 1.0
        self.waited += next(self.taken)
        self.made += 1
        return [float(self.made)]


def test_an_undisturbed_visit_counts_as_it_is() -> None:
    machine = Scripted(0.0, DISTURBED / 2)
    found = Disturbance(machine, clock=machine.clock)
    assert [list(found.take(machine.visit)) for _ in range(2)] == [[1.0], [2.0]]
    assert (found.visits, found.repeated, found.disturbed, found.share) == (2, 0, 0, 0.0)


def test_a_disturbed_visit_is_made_again() -> None:
    machine = Scripted(0.4, 0.0)
    found = Disturbance(machine, clock=machine.clock)
    assert found.take(machine.visit) == [2.0]
    assert (found.visits, found.repeated, found.disturbed) == (1, 1, 0)
    assert found.waited_ms == pytest.approx(400.0)


def test_the_least_disturbed_of_all_tries_counts_and_is_marked() -> None:
    machine = Scripted(*[0.0] * 10, 0.4, 0.2, 0.3, 0.5, 0.0)
    found = Disturbance(machine, clock=machine.clock)
    assert [list(found.take(machine.visit)) for _ in range(11)][-1] == [12.0]
    assert (found.visits, found.repeated, found.disturbed) == (11, MOST_REPEATS, 1)
    assert found.share == pytest.approx(1 / 11)


def test_a_machine_that_is_never_quiet_costs_no_more_than_twice_the_time() -> None:
    machine = Scripted(*[0.5] * 1000)
    found = Disturbance(machine, clock=machine.clock)
    for _ in range(100):
        found.take(machine.visit)
    assert machine.made <= 2 * 100 + MOST_REPEATS
    assert found.share == 1.0
    found.reset()
    assert (found.visits, found.repeated, found.share) == (0, 0, None)


def test_where_the_system_does_not_say_nothing_is_repeated(tmp_path: Path) -> None:
    found = Disturbance(RunQueue(tmp_path))
    assert found.take(lambda: [1.0]) == [1.0]
    assert (found.waited_ms, found.share, found.repeated) == (None, None, 0)


class Hypervisor:
    """A machine of two CPUs; `visit` takes a second, of which another machine takes so many ticks of one of them."""

    def __init__(self, root: Path, taken_before: int, *ticks: int) -> None:
        self.file, self.ticks, self.stolen = root / "proc" / "stat", iter(ticks), taken_before
        self.now, self.made = 0.0, 0
        self.file.parent.mkdir()
        self._write()

    def _write(self) -> None:
        self.file.write_text(f"cpu 0 0\ncpu0 1 2 3 4 5 6 7 0 0 0\ncpu1 1 2 3 4 5 6 7 {self.stolen} 0 0\nintr 5\n")

    def visit(self) -> Sequence[float]:
        self.now += 1.0
        self.stolen += next(self.ticks)
        self.made += 1
        self._write()
        return [float(self.made)]


TICKS = os.sysconf("SC_CLK_TCK")


def test_a_visit_of_which_a_hypervisor_took_much_is_made_again(tmp_path: Path) -> None:
    machine = Hypervisor(tmp_path, 7, 0, TICKS // 5, 0)
    found = Disturbance(RunQueue(tmp_path), Steal((0, 1), tmp_path), lambda: machine.now)
    assert [list(found.take(machine.visit)) for _ in range(2)] == [[1.0], [3.0]]
    assert (found.visits, found.repeated, found.disturbed, found.share) == (2, 1, 0, 0.0)
    assert found.waited_ms is None, "what was stolen is told by itself"


def test_what_a_hypervisor_takes_of_other_cpus_or_of_one_in_many_disturbs_nobody(tmp_path: Path) -> None:
    machine = Hypervisor(tmp_path, 7, *[TICKS // 30] * 3)
    for steal, again in ((Steal((0,), tmp_path), 0), (Steal((0, 1), tmp_path, share=0.5), 0)):
        found = Disturbance(RunQueue(tmp_path), steal, lambda: machine.now)
        found.take(machine.visit)
        assert found.repeated == again


def test_where_nothing_was_ever_stolen_it_is_not_asked_for_at_every_visit(tmp_path: Path) -> None:
    machine = Hypervisor(tmp_path, 0, TICKS, TICKS, 0)
    found = Disturbance(RunQueue(tmp_path), Steal((0, 1), tmp_path), lambda: machine.now)
    assert (found.take(machine.visit), found.repeats, found.share) == ([1.0], None, None)
    found.reset()
    assert (found.take(machine.visit), found.repeats) == ([3.0], 1), "the next race knows"


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system counts no waiting for CPUs")
def test_threads_that_share_a_cpu_wait_for_each_other() -> None:
    """The kernel's own counts: of two that want one CPU, each waits about as long as the other runs."""
    cpu = min(os.sched_getaffinity(0))
    ready, stop = threading.Barrier(3), threading.Event()

    def spin() -> None:
        os.sched_setaffinity(threading.get_native_id(), {cpu})
        ready.wait()
        while not stop.is_set():
            os.getppid()

    threads = [threading.Thread(target=spin) for _ in range(2)]
    for thread in threads:
        thread.start()
    ready.wait()
    queue = RunQueue()
    queue.look()
    before = queue.waited_seconds()
    deadline = time.monotonic() + 20.0
    while before is not None and (queue.waited_seconds() or 0.0) < before + 1e-4 and time.monotonic() < deadline:
        time.sleep(0.01)
    after = queue.waited_seconds()
    stop.set()
    for thread in threads:
        thread.join()
    queue.close()
    assert before is not None and after is not None and after >= before + 1e-4


def test_the_waiting_of_one_thread_is_told_from_that_of_others(tmp_path: Path) -> None:
    """Linux has a file `schedstat` for each thread, with nanoseconds of waiting for a CPU in its second column."""
    for thread, waited in ((threading.get_native_id(), 5_000_000), (1, 9_000_000)):
        file = tmp_path / "proc/self/task" / str(thread) / "schedstat"
        file.parent.mkdir(parents=True)
        file.write_text(f"1 {waited} 3\n")
    for own, seconds in ((True, 0.005), (False, 0.014)):
        queue = RunQueue(tmp_path, own=own)
        queue.look()
        assert queue.waited_seconds() == pytest.approx(seconds)
        queue.close()


def test_what_others_used_of_the_cpus_is_told(tmp_path: Path) -> None:
    file = tmp_path / "proc" / "stat"
    file.parent.mkdir()
    file.write_text("cpu0 100 0 50 900 9 1 1 0\ncpu1 100 0 50 900 9 1 1 0\n")
    watch = CpuWatch((0, 1), tmp_path)
    with watch:
        file.write_text("cpu0 10100 0 10050 900 99 1 1 0\ncpu1 100 0 50 990 9 1 1 0\n")
    assert watch.seen is not None and watch.seen.others_ms is not None
    assert 0 < watch.seen.others_ms <= 20000 * 1000 / os.sysconf("SC_CLK_TCK"), "idle and waiting for disks is no work"
