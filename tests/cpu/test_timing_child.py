"""One timing child per device: processes take turns, and what fails its probe is out of service for all of them."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import pytest

from codegen.devices.detection import detect
from codegen.devices.quarantine import DeviceQuarantined, Quarantines
from codegen.sandbox.device_lock import device_turn
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.workbench import probe
from codegen.workbench.workbench import Workbench
from fusion_ir.records import Status
from fusion_ir.text.printing import print_graph
from tests.support.devices import CPU_DEVICE
from tests.support.kernels import SUM, sum_graph, sum_kernel
from tests.support.processes import cpu_seconds, gone, within

ROOT = Path(__file__).resolve().parents[2]
N = 1001
LIMITS = Limits(kernel_seconds=0.5, timing_seconds=0.0)
CRASH = "*(volatile int*)8 = 1;"


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    return ObjectCache(tmp_path / "cache")


@pytest.fixture
def bench(cache: ObjectCache) -> Iterator[Workbench]:
    with Workbench(detect("cpu", cache, ceilings=False), cache, LIMITS) as made:
        yield made


def status(bench: Workbench, body: str = SUM) -> Status:
    (row,) = bench.measure(sum_graph(N), "s", [sum_kernel(N, f"k{crc32(body.encode())}", body)])
    return row.status


@pytest.fixture
def wrong_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device on which the kernel known to be right gives something else."""
    monkeypatch.setitem(probe.SOURCES, "cpu", probe.SOURCES["cpu"].replace("a[i] + b[i]", "a[i] - b[i]"))


@pytest.mark.turn("timing children")
def test_a_bad_kernel_leaves_the_device_in_service(bench: Workbench, cache: ObjectCache) -> None:
    assert [status(bench), status(bench, CRASH), status(bench)] == [Status.ok, Status.crashed, Status.ok]
    assert Quarantines(cache).all() == []


@pytest.mark.turn("timing children")
@pytest.mark.usefixtures("wrong_sums")
def test_a_device_that_fails_its_probe_is_out_of_service_until_released(bench: Workbench, cache: ObjectCache) -> None:
    assert status(bench) is Status.ok, "no probe while nothing went wrong"
    assert status(bench, CRASH) is Status.crashed
    with pytest.raises(DeviceQuarantined, match="wrong_result"):
        status(bench)
    (fact,) = Quarantines(cache).all()
    assert (fact.device_key, fact.name, fact.pid) == (bench.device.class_key, bench.device.name, os.getpid())
    with Workbench(bench.device, cache, LIMITS) as other:
        start = time.monotonic()
        with pytest.raises(DeviceQuarantined, match=f"fuseplan devices --release {fact.device_key}"):
            status(other)
        assert time.monotonic() - start < 0.5, "at once, without a compiler or a child"
    assert Quarantines(cache).release(fact.device_key)
    assert not Quarantines(cache).release(fact.device_key)
    with Workbench(bench.device, cache, LIMITS) as other:
        assert status(other) is Status.ok


@pytest.mark.turn("timing children")
def test_the_probe_follows_a_child_that_died_between_jobs(bench: Workbench, cache: ObjectCache) -> None:
    assert status(bench) is Status.ok
    child = bench._timer.slot.pid  # pyright: ignore[reportPrivateUsage]
    assert child is not None
    os.kill(child, signal.SIGKILL)
    time.sleep(0.2)
    probed: list[str] = []
    job = bench._timer.probe_job  # pyright: ignore[reportPrivateUsage]
    assert job is not None
    call = bench._timer.slot.call  # pyright: ignore[reportPrivateUsage]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            bench._timer.slot,  # pyright: ignore[reportPrivateUsage]
            "call",
            lambda message, **more: (probed.append(str(message is job)), call(message, **more))[1],
        )
        assert status(bench) is Status.ok
    assert probed == ["True", "False", "False"], "then the segment is interpreted, and its kernel timed"


def test_a_fact_that_cannot_be_read_holds(cache: ObjectCache) -> None:
    facts = Quarantines(cache)
    facts.add(CPU_DEVICE, "wrong sums")
    (cache.devices / f"{CPU_DEVICE.class_key}.quarantine").write_bytes(b"{")
    (fact,) = facts.all()
    assert fact == facts.find(CPU_DEVICE.class_key)
    assert (fact.device_key, "cannot be read" in fact.reason) == (CPU_DEVICE.class_key, True)
    assert facts.release(CPU_DEVICE.class_key)
    assert facts.find(CPU_DEVICE.class_key) is None


# Takes the device or a segment, says so, and holds it for `seconds`, `times` times.
HOLDER = """
import sys, time
from codegen.sandbox.device_lock import device_turn, segment_turn
from codegen.sandbox.object_cache import ObjectCache
cache, name, times, seconds = ObjectCache(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
for _ in range(times):
    with segment_turn(cache, "d", sys.argv[5]) if sys.argv[5:] else device_turn(cache, "d"):
        start = time.monotonic()
        print(flush=True)
        time.sleep(seconds)
        with open(sys.argv[1] + "/log", "a") as log:
            log.write(f"{name} {start} {time.monotonic()}\\n")
"""


def holder(
    cache: ObjectCache, name: str, times: int, seconds: float, segments: Sequence[str] = ()
) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", HOLDER, str(cache.folder), name, str(times), str(seconds), *segments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.turn("timing children")
@pytest.mark.parametrize("segments", [(), ("0123456789abcdef",)], ids=["device", "segment"])
def test_processes_take_turns_and_nobody_starves(cache: ObjectCache, segments: Sequence[str]) -> None:
    with holder(cache, "a", 20, 0.02, segments) as one, holder(cache, "b", 20, 0.02, segments) as two:
        assert (one.wait(60), two.wait(60)) == (0, 0)
    turns = [
        (line.split()[0], *map(float, line.split()[1:])) for line in (cache.folder / "log").read_text().split("\n")[:-1]
    ]
    turns.sort(key=lambda turn: turn[1])
    assert all(before[2] <= after[1] for before, after in pairwise(turns)), "never two at a time"
    names = "".join(str(turn[0]) for turn in turns)
    both = names[max(names.index("a"), names.index("b")) : 1 + min(names.rindex("a"), names.rindex("b"))]
    assert "aaa" not in both and "bbb" not in both, names


def test_a_killed_process_gives_its_turn_back(cache: ObjectCache) -> None:
    with holder(cache, "a", 1, 600) as one:
        assert one.stdout is not None
        one.stdout.readline()
        one.send_signal(signal.SIGKILL)
        start = time.monotonic()
        with device_turn(cache, "d"):
            assert time.monotonic() - start < 1.0


# Measures a kernel that spins, after a line that says that its child works.
SPINNER = """
import sys
from codegen.devices.detection import detect
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.workbench.workbench import Workbench
from tests.support.kernels import SUM, sum_graph, sum_kernel
cache = ObjectCache(sys.argv[1])
with Workbench(detect("cpu", cache, ceilings=False), cache, Limits(kernel_seconds=600.0)) as bench:
    bench.measure(sum_graph(8), "s", [sum_kernel(8, "good", SUM)])
    print(bench._timer.slot.pid, flush=True)
    bench.measure(sum_graph(8), "s", [sum_kernel(8, "spins", "for (volatile int x = 0;;) x = x;")])
"""


@pytest.mark.turn("timing children")
def test_the_child_of_a_killed_process_does_not_hold_the_device(bench: Workbench, cache: ObjectCache) -> None:
    command = [sys.executable, "-c", SPINNER, str(cache.folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        try:
            assert parent.stdout is not None
            child = int(parent.stdout.readline())
            used = cpu_seconds(child)
            assert within(30, lambda: cpu_seconds(child) > used + 0.3), "the compiler is through, and the kernel spins"
        finally:
            parent.kill()
        start = time.monotonic()
        with device_turn(cache, bench.device.class_key):
            assert time.monotonic() - start < 1.0
        assert within(1.0, lambda: gone(child))


def test_a_job_beside_others_does_not_wait(bench: Workbench, cache: ObjectCache) -> None:
    assert status(bench) is Status.ok
    timer = bench._timer  # pyright: ignore[reportPrivateUsage]
    before = bench.waited_seconds
    job = {"job": "prepare", "graph": print_graph(sum_graph(N)), "seed": 0, "cache_bytes": 1 << 20}
    with device_turn(cache, bench.device.class_key):
        timer.call(job, seconds=60.0, beside_others=True)  # would wait for ever
    assert bench.waited_seconds - before < 1.0
    with ThreadPoolExecutor(1) as other:
        with device_turn(cache, bench.device.class_key):
            waiting = other.submit(timer.call, job, seconds=60.0)
            time.sleep(0.3)
            assert not waiting.done()
        waiting.result(60)
    assert bench.waited_seconds - before >= 0.2


@pytest.mark.turn("timing children")
def test_a_kernel_is_not_to_blame_where_somebody_else_killed_its_child(bench: Workbench) -> None:
    """The system for want of memory, or a person: the kernel has a second chance."""
    assert status(bench) is Status.ok
    kernel = sum_kernel(N, "slow", "usleep(150000);" + SUM, before='extern "C" int usleep(unsigned);')
    bench.compile([kernel])
    child = bench._timer.slot.pid  # pyright: ignore[reportPrivateUsage]
    assert child is not None
    killer = threading.Timer(0.2, os.kill, (child, signal.SIGKILL))
    killer.start()
    (row,) = bench.measure(sum_graph(N), "s", [kernel])
    killer.join()
    assert gone(child)
    assert row.status is Status.ok, row.detail
