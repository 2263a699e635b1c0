"""Temporary folders: gone with their block, their process, or, after a kill, with the next process that makes one."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from codegen.sandbox import temporary_folders
from codegen.sandbox.temporary_folders import PREFIX, make_folder, remove_folder, sweep, temporary_folder

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place for temporary folders, empty."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def ended(code: str, place: Path) -> "subprocess.CompletedProcess[str]":
    """A process that made a folder and then did what `code` says, with its folder's path on stdout."""
    made = "from codegen.sandbox.temporary_folders import make_folder; import os, sys; print(make_folder(), flush=True)"
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(place), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", f"{made}; {code}"]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def test_a_folder_goes_with_its_block_also_when_that_fails(place: Path) -> None:
    def fail_in_it() -> None:
        with temporary_folder() as folder:
            Path(folder, "file").write_text("text")
            assert [Path(folder)] == list(place.iterdir())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_in_it()
    assert not list(place.iterdir())


@pytest.mark.parametrize("code", ["pass", "sys.exit(3)", "raise KeyboardInterrupt"])
def test_a_folder_goes_with_its_process(place: Path, code: str) -> None:
    assert ended(code, place).stdout.startswith(str(place / PREFIX))
    assert not list(place.iterdir())


def test_a_folder_of_a_killed_process_goes_when_the_next_one_is_made(place: Path) -> None:
    killed = ended("os.kill(os.getpid(), 9)", place)
    assert killed.returncode == -signal.SIGKILL
    left = Path(killed.stdout.strip())
    (left / "inside").mkdir()
    assert left.exists()
    with temporary_folder() as folder:
        assert [Path(folder)] == list(place.iterdir())


def test_folders_in_use_and_those_of_others_stay(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_folder()
    (place / "somewhere").mkdir()
    (place / f"{PREFIX}link").symlink_to(place / "somewhere")
    (place / f"{PREFIX}file").touch()
    before = {*place.iterdir()}
    sweep()
    assert ended("pass", place).returncode == 0
    assert {*place.iterdir()} == before
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    (place / f"{PREFIX}other").mkdir()
    sweep()
    assert (place / f"{PREFIX}other").exists()
    monkeypatch.undo()
    remove_folder(folder)
    assert not Path(folder).exists()


def test_a_folder_that_a_sweep_took_before_it_was_locked_is_made_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, swept = temporary_folders._lock, list[str]()

    def late(folder: str) -> int | None:
        if not swept:
            swept.append(folder)
            os.rmdir(folder)
        return lock(folder)

    monkeypatch.setattr(temporary_folders, "_lock", late)
    with temporary_folder() as folder:
        assert Path(folder).exists()
        assert folder not in swept
    assert not list(place.iterdir())
