"""Processes that let others go first do so between sessions, too, and take nobody along."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.api.reader_process import NICE
from service.process.yielding import AUTOGROUP
from tests.support.service_app import Running, wire
from tests.support.service_process import ROOT
from tests.support.whole import in_turn

CODE = """
import os
from tests.service.api.test_yielding import group_niceness
from service.process.yielding import AUTOGROUP, go_behind
before, group = os.nice(0), group_niceness(AUTOGROUP)
go_behind(3)
print(os.nice(0) - before, group, group_niceness(AUTOGROUP))
"""


def group_niceness(file: Path) -> str:
    """Niceness of a process's autogroup; "none" where the kernel has no such groups, or the process is in none.

    The file of a process in the kernel's default group (that of processes started outside any session) is empty.
    """
    words = file.read_text().split() if file.exists() else []
    return words[-1] if words else "none"


@pytest.mark.soak
@pytest.mark.parametrize("leads", in_turn([True, False], 1))
def test_a_session_goes_behind_with_who_leads_it(leads: bool) -> None:
    ours = group_niceness(AUTOGROUP)
    done = subprocess.run(
        [sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=True, start_new_session=leads
    )
    own, before, after = done.stdout.split()
    assert own == str(min(3, 19 - os.nice(0)))
    assert after == ("3" if leads and before != "none" else before)
    assert group_niceness(AUTOGROUP) == ours


def test_of_a_process_in_no_group_there_is_no_niceness(tmp_path: Path) -> None:
    (tmp_path / "autogroup").write_text("")
    assert group_niceness(tmp_path / "autogroup") == group_niceness(tmp_path / "missing") == "none"


def test_readers_of_bodies_go_behind(service: Running) -> None:
    assert service.client.post("/v1/plans:resolve", json={"graph": wire()}).status_code == 202
    pid = service.app.state.context.readers._source._process.pid
    assert group_niceness(Path(f"/proc/{pid}/autogroup")) in (str(NICE), "none")
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(NICE + os.nice(0), 19)
