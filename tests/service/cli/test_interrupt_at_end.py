"""An interrupt that comes once a command has told its result: the exit code stays that of the result."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# As late as any code of ours can hear of it: while Python ends.
INTERRUPTED = """
import atexit, os, signal, sys
atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))
from service.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(("command", "code"), [("--version", 0), ("nonsense", 2)])
def test_an_interrupt_while_python_ends_changes_no_exit_code(tmp_path: Path, command: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, command],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
        cwd=tmp_path,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # whatever started us ignores
        check=False,
    )
    assert done.returncode == code
    assert "KeyboardInterrupt" not in done.stderr
