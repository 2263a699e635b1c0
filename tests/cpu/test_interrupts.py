"""Ctrl-C, typed at a terminal of its own: the best so far is stored and printed, whenever it comes.

Once in every run, at another moment each time; `make soak` sets FUSEPLAN_KILLS, of which a fifth are interrupts.
"""

import fcntl
import json
import os
import random
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from fusion_ir.keys.graph_key import graph_key
from fusion_ir.text.printing import print_graph
from scheduler.budget import INTERRUPTED
from tests.support.processes import descendants, gone, within
from tests.support.stored_plans import chain
from tests.support.whole import WHOLE, seed
from tuning_db.store import Store

ROOT = Path(__file__).resolve().parents[2]
TIMES = max(1, int(os.environ.get("FUSEPLAN_KILLS", "0")) // 5)
CTRL_C = b"\x03"
SEARCH_SECONDS = 60.0
END_SECONDS = 15.0  # what compiles is let end, then the best plan's kernels are compiled alone


class Typed:
    """`fuseplan tune --json` at a terminal, of which it is the foreground process, and which shows what it draws."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.graph = folder, chain(1000 + number, ("exp", "sin", "tanh"))
        self.file = folder / f"graph{number}.txt"
        self.file.write_text(print_graph(self.graph))
        self.log = folder / f"log{number}"
        self.log.touch()

    @contextmanager
    def started(self) -> Iterator["subprocess.Popen[bytes]"]:
        self.keyboard, terminal = os.openpty()
        arguments = ["tune", str(self.file), "--json", "--seconds", str(SEARCH_SECONDS)]
        env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "HOME": str(self.folder),
            "TERM": "xterm",
            "FUSEPLAN_DB": self.url,
            "FUSEPLAN_CACHE": str(self.folder / "cache"),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.logged_process", str(self.log), *arguments],
            env=env,
            cwd=ROOT,
            stdin=terminal,
            stdout=subprocess.PIPE,
            stderr=terminal,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(terminal)
        shown = threading.Thread(target=self._show)
        shown.start()
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            shown.join()
            os.close(self.keyboard)

    def _show(self) -> None:
        """Takes what is drawn, until nobody is left who could: a terminal that takes nothing stops who writes to it."""
        with suppress(OSError):  # the terminal's other end is closed
            while os.read(self.keyboard, 1 << 16):
                pass

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder / 'plans.db'}"

    def interrupt(self) -> None:
        os.write(self.keyboard, CTRL_C)

    def has_measured(self) -> bool:
        return self.log.stat().st_size > 0


@pytest.mark.turn("interrupts")
@pytest.mark.soak
@pytest.mark.timeout(120 + 40 * TIMES)
def test_an_interrupt_stores_and_prints_the_best_so_far(known_machine: Path) -> None:
    rng = random.Random(3 if WHOLE else seed())
    for number in range(TIMES):
        typed = Typed(known_machine, number)
        with typed.started() as process:
            assert within(60, typed.has_measured)
            time.sleep(rng.uniform(0.0, 4.0 if WHOLE else 1.5))
            family = descendants(process.pid)
            typed.interrupt()
            out, _ = process.communicate(timeout=END_SECONDS)
        assert process.returncode == 0, number
        answer = json.loads(out)
        assert answer["graph_key"] == graph_key(typed.graph)
        assert answer["cache"] == "miss"
        interrupted = any(reason["text"] == INTERRUPTED for reason in answer["reasons"])
        assert interrupted or answer["search"]["seconds"] < SEARCH_SECONDS  # or it was through
        with Store(typed.url) as store:
            assert store.plans.plan(answer["plan_key"])
        assert within(2.0, lambda family=family: all(map(gone, family)))


def test_an_interrupt_before_the_search_ends_the_command(tmp_path: Path) -> None:
    typed = Typed(tmp_path, 0)
    with typed.started() as process:
        assert within(30, lambda: (tmp_path / "cache").exists())  # it looks for the device
        typed.interrupt()
        out, _ = process.communicate(timeout=END_SECONDS)
    assert (process.returncode, out) == (130, b"")


@pytest.mark.turn("interrupts")
def test_two_interrupts_end_at_once(known_machine: Path) -> None:
    typed = Typed(known_machine, 0)
    with typed.started() as process:
        assert within(60, typed.has_measured)
        typed.interrupt()
        time.sleep(0.05)
        typed.interrupt()
        process.communicate(timeout=END_SECONDS)
    assert process.returncode in (0, 130), "the plan may have been there already"
