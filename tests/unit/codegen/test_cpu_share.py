"""How much of a CPU a thread gets beside others: by the system's counters, and beside a busy thread on one CPU."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from codegen.hardware.machine import usable_cpus
from codegen.timing.cpu_share import CpuShare


def counters(root: Path, text: str) -> None:
    folder = root / f"proc/self/task/{threading.get_native_id()}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schedstat").write_text(text)


def test_share_since_the_restart(tmp_path: Path) -> None:
    counters(tmp_path, "1000 500 3\n")
    share = CpuShare(tmp_path)
    assert share.share() is None, "it neither ran nor waited"
    counters(tmp_path, "1300 600 4\n")
    assert share.share() == 0.75
    share.restart()
    counters(tmp_path, "1400 900 5\n")
    assert share.share() == 0.25


@pytest.mark.parametrize("text", ["", "12", "a b"])
def test_counters_that_are_hidden(tmp_path: Path, text: str) -> None:
    counters(tmp_path, text)
    share = CpuShare(tmp_path)
    counters(tmp_path, "1300 600 4")
    assert share.share() is None


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not count")
def test_beside_three_others_on_one_cpu_it_gets_a_part() -> None:
    """A part, whichever: how the system shares a CPU out is not ours to say."""
    cpu = usable_cpus()[0]
    pinned = f"import os; os.sched_setaffinity(0, [{cpu}])\nwhile True: pass"
    others = [subprocess.Popen([sys.executable, "-c", pinned]) for _ in range(3)]
    found: list[float | None] = []

    def work() -> None:
        os.sched_setaffinity(0, [cpu])
        share, end = CpuShare(), time.monotonic() + 1.0
        while time.monotonic() < end:
            pass
        found.append(share.share())

    try:
        time.sleep(0.2)
        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert found[0] is not None
    assert 0.0 < found[0] < 0.8
