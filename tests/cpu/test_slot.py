"""Children: what they may do, and that nothing they do hurts the parent or outlives it."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from codegen.sandbox import slot as slots
from codegen.sandbox.child_process import ChildProcess
from codegen.sandbox.limits import GIB
from codegen.sandbox.slot import ChildLimits, Slot, SlotError, SlotFailure
from fusion_ir.records import Status
from tests.support.processes import gone, within

ROOT = Path(__file__).resolve().parents[2]
LIMITS = ChildLimits(memory_bytes=GIB, file_bytes=1 << 20, output_bytes=1 << 16)


@pytest.fixture
def slot() -> Iterator[Slot]:
    with Slot("codegen.child.cpu_compiler", LIMITS, dies_with_parent=False) as made:
        yield made


def python(code: str, **more: Any) -> dict[str, Any]:
    """A job that runs `code`."""
    return {"job": "run", "argv": [sys.executable, "-c", code], "cwd": "/", **more}


def sleeping(note: Path) -> dict[str, Any]:
    """A job that leaves a note when it has begun, and takes a minute."""
    return python(f"import time; open({str(note)!r}, 'w').write('begun'); time.sleep(60)")


def test_answers_with_what_was_printed(slot: Slot) -> None:
    for text in ("one", "two"):
        answer = slot.call(
            python(f"import sys; print('{text}'); print('err', file=sys.stderr); sys.exit(3)"), seconds=20
        )
        assert answer["returncode"] == 3
        assert sorted(answer["output"].split()) == sorted([text, "err"])


def test_a_job_may_have_more_time_than_a_system_call_takes(slot: Slot) -> None:
    """1e12 seconds: the limit for checking tensors of terabytes, where 2^40 elements ended in an OverflowError."""
    assert slot.call(python("pass"), seconds=1e12)["returncode"] == 0


def test_a_child_ignores_no_signal_that_its_parent_was_told_to_ignore(slot: Slot) -> None:
    """A parent under nohup ignores signals; a child that did too would go on after its kernel had raised one."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
        assert slot.call(python(code), seconds=20)["output"].strip() == "False"
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_time_that_a_child_uses_is_seen(slot: Slot) -> None:
    assert slot.cpu_seconds() == 0.0, "there is none yet"
    slot.start()
    used = slot.cpu_seconds()
    assert used > 0.0
    slot.close()
    assert slot.cpu_seconds() == 0.0


def test_one_child_serves_many_jobs(slot: Slot) -> None:
    slot.call(python("pass"), seconds=20)
    first = slot.pid
    slot.call(python("pass"), seconds=20)
    assert slot.pid == first


@pytest.mark.sweep(0.4)
@pytest.mark.parametrize(
    ("code", "status"),
    [
        pytest.param("while True: pass", Status.timed_out, id="spins"),
        pytest.param("import time; time.sleep(60)", Status.timed_out, id="sleeps"),
        pytest.param("while True: print('x' * 1000)", Status.crashed, id="prints without end"),
        pytest.param("import os; os.kill(os.getppid(), 11)", Status.crashed, id="kills the child"),
        pytest.param("import os; os.kill(os.getppid(), 9)", Status.out_of_memory, id="as the system does for memory"),
    ],
)
def test_failures_have_a_status_and_the_next_job_is_right(slot: Slot, code: str, status: Status) -> None:
    with pytest.raises(SlotFailure) as caught:
        slot.call(python(code), seconds=1.0)
    assert caught.value.status is status
    start = time.monotonic()
    assert slot.call(python("print(6 * 7)"), seconds=20)["output"].strip() == "42"
    assert time.monotonic() - start < 5


def test_a_killed_job_takes_its_own_children_along(slot: Slot, tmp_path: Path) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', "
    code += f'\'import os, time; open("{tmp_path}/pid", "w").write(str(os.getpid())); time.sleep(60)\'])'
    with pytest.raises(SlotFailure):
        slot.call(python(code), seconds=1.5)
    assert within(5, lambda: gone(int((tmp_path / "pid").read_text())))


def test_memory_and_files_are_limited(slot: Slot, tmp_path: Path) -> None:
    answer = slot.call(python(f"x = bytearray({2 * GIB})"), seconds=20)
    assert answer["returncode"] == 1
    assert "MemoryError" in answer["output"]
    answer = slot.call(python(f"open('{tmp_path}/big', 'wb').write(bytes({2 << 20}))"), seconds=20)
    assert answer["returncode"] != 0
    assert (tmp_path / "big").stat().st_size <= 1 << 20


def test_no_core_files(slot: Slot) -> None:
    answer = slot.call(python("import resource; print(resource.getrlimit(resource.RLIMIT_CORE)[0])"), seconds=20)
    assert answer["output"].strip() == "0"


def test_children_see_no_secrets(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSEPLAN_API_KEY", "canary-1")
    monkeypatch.setenv("DATABASE_PASSWORD", "canary-2")
    answer = slot.call(python("import os; print(dict(os.environ))"), seconds=20)
    assert "PATH" in answer["output"]
    assert "canary" not in answer["output"]


def test_a_wrong_job_is_an_error_and_leaves_the_child_alive(slot: Slot) -> None:
    slot.call(python("pass"), seconds=20)
    child = slot.pid
    with pytest.raises(SlotError, match="KeyError"):
        slot.call({"job": "no such job"}, seconds=20)
    slot.call(python("pass"), seconds=20)
    assert slot.pid == child


def test_a_module_that_does_not_start_is_an_error() -> None:
    with Slot("codegen.child.no_such_module", LIMITS) as slot, pytest.raises(SlotError, match="no_such_module"):
        slot.call({"job": "run"}, seconds=5)


def test_a_large_request_arrives_whole(slot: Slot) -> None:
    answer = slot.call(python("print('fine')", padding="x" * (3 << 20)), seconds=20)
    assert answer["output"].strip() == "fine"


def test_close_ends_the_child(slot: Slot) -> None:
    slot.call(python("pass"), seconds=20)
    child = slot.pid
    assert child is not None
    slot.close()
    assert gone(child)


@pytest.mark.parametrize("dies_with_parent", [True, False])
def test_a_killed_parent_leaves_nobody_behind(dies_with_parent: bool, tmp_path: Path) -> None:
    grandchild = f"import os, time; open('{tmp_path}/grandchild', 'w').write(str(os.getpid())); time.sleep(60)"
    script = f"""
import sys, threading, time
from codegen.sandbox.slot import ChildLimits, Slot
slot = Slot("codegen.child.cpu_compiler", ChildLimits(), dies_with_parent={dies_with_parent})
slot.restart()
print(slot.pid, flush=True)
if not {dies_with_parent}:
    slot.call({{"job": "run", "argv": [sys.executable, "-c", {grandchild!r}], "cwd": "/"}}, seconds=60)
time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    pids = [child]
    if not dies_with_parent:
        note = tmp_path / "grandchild"
        assert within(20, lambda: note.exists() and note.read_text() != "")
        pids.append(int(note.read_text()))
    assert not any(gone(pid) for pid in pids)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert within(5, lambda: all(gone(pid) for pid in pids))


def test_what_is_paused_stands_still_with_all_that_it_started_and_loses_no_time(slot: Slot, tmp_path: Path) -> None:
    note = tmp_path / "note"
    script = f"import time; open({str(note)!r}, 'w').write('begun'); time.sleep(0.2); t = time.process_time()\n"
    script += "while time.process_time() - t < 0.5: pass"
    with ThreadPoolExecutor(1) as other:
        running = other.submit(slot.call, python(script), seconds=2.5)
        assert within(20, note.exists)
        slot.pause()
        slot.pause()
        time.sleep(3.0)
        assert not running.done(), "its 2.5 seconds do not count these"
        slot.resume()
        assert running.result()["returncode"] == 0


def test_a_limit_holds_after_a_pause(slot: Slot, tmp_path: Path) -> None:
    note = tmp_path / "note"
    with ThreadPoolExecutor(1) as other:
        running = other.submit(slot.call, sleeping(note), seconds=1.0)
        assert within(20, note.exists)
        slot.pause()
        time.sleep(0.2)
        slot.resume()
        with pytest.raises(SlotFailure) as failure:
            running.result()
    assert failure.value.status is Status.timed_out


def test_what_is_ended_ends_at_once_and_is_not_begun_again(slot: Slot, tmp_path: Path) -> None:
    note = tmp_path / "note"
    with ThreadPoolExecutor(1) as other:
        running = other.submit(slot.call, sleeping(note), seconds=60)
        assert within(20, note.exists)
        slot.pause()
        slot.abort()
        with pytest.raises(SlotFailure):
            running.result(20)
    with pytest.raises(SlotError):
        slot.call(python("pass"), seconds=20)


def test_a_parent_that_is_killed_leaves_nobody_standing_still(tmp_path: Path) -> None:
    note = tmp_path / "grandchild"
    grandchild = f"import os, time; open('{note}', 'w').write(str(os.getpid())); time.sleep(60)"
    script = f"""
import pathlib, sys, threading, time
from codegen.sandbox.slot import ChildLimits, Slot
slot = Slot("codegen.child.cpu_compiler", ChildLimits(), dies_with_parent=False)
slot.restart()
job = {{"job": "run", "argv": [sys.executable, "-c", {grandchild!r}], "cwd": "/"}}
threading.Thread(target=lambda: slot.call(job, seconds=60), daemon=True).start()
while not (pathlib.Path({str(note)!r}).exists() and pathlib.Path({str(note)!r}).read_text()):
    time.sleep(0.01)
slot.pause()
print(slot.pid, flush=True)
time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert parent.stdout is not None
    pids = [int(parent.stdout.readline()), int(note.read_text())]
    assert not any(gone(pid) for pid in pids)
    assert within(5, lambda: all(Path(f"/proc/{pid}/stat").read_text().split()[2] == "T" for pid in pids))
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert within(5, lambda: all(gone(pid) for pid in pids))


def test_a_child_started_by_a_thread_outlives_the_thread() -> None:
    import threading

    with Slot("codegen.child.cpu_compiler", LIMITS, dies_with_parent=True) as slot:
        thread = threading.Thread(target=slot.restart)
        thread.start()
        thread.join()
        child = slot.pid
        time.sleep(0.3)
        assert slot.call(python("print(1)"), seconds=20)["output"].strip() == "1"
        assert slot.pid == child


INTERRUPTED_START = """
import threading
from codegen.sandbox.slot import _spawner

start = threading.Thread.start

def interrupted(self):
    start(self)
    if threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt

threading.Thread.start = interrupted
_spawner()
"""


def test_an_interrupt_while_the_spawner_starts_leaves_no_thread_behind() -> None:
    command = [sys.executable, "-c", INTERRUPTED_START]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert ended.returncode != 0
    assert "KeyboardInterrupt" in ended.stderr


class Interrupted:
    """The start of a child that an interrupt strikes, at the very end of the wait for it."""

    def __init__(self, started: "Future[ChildProcess]") -> None:
        self.cancel, self.add_done_callback = started.cancel, started.add_done_callback
        self.started = started

    def result(self) -> ChildProcess:
        self.started.result()
        raise KeyboardInterrupt


def test_an_interrupt_while_a_child_starts_leaves_nothing(
    slot: Slot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Spawner:
        def submit(self, *arguments: Any) -> Interrupted:
            made.append(spawner.submit(*arguments))
            return Interrupted(made[-1])

    made: list[Future[ChildProcess]] = []
    spawner = slots._spawner()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(slots, "_spawner", Spawner)
    with pytest.raises(KeyboardInterrupt):
        slot.start()
    assert slot.pid is None
    assert gone(made[0].result().process.pid)
    assert not list(tmp_path.iterdir())


def test_an_interrupt_while_a_child_ends_leaves_no_folder(tmp_path: Path) -> None:
    code = """
        import shutil, sys
        from codegen.sandbox import child_process
        from codegen.sandbox.slot import ChildLimits, Slot
        remove, struck = shutil.rmtree, []
        def interrupted(*a, **k):
            if struck:
                return remove(*a, **k)
            struck.append(a)
            raise KeyboardInterrupt
        slot = Slot("codegen.child.cpu_compiler", ChildLimits())
        slot.start()
        shutil.rmtree = interrupted
        try:
            slot.close()
        except KeyboardInterrupt:
            print("interrupted")
    """
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=env, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert ended.stdout == "interrupted\n", ended.stderr
    assert not list(tmp_path.iterdir())
