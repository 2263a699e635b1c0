"""Processes that let others go first do so between sessions, too, and take nobody along."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.api.reader_process import NICE
from service.yielding import AUTOGROUP
from tests.support.service_app import Running, wire
from tests.support.service_process import ROOT

CODE = """
import os
from service.yielding import AUTOGROUP, go_behind
before = os.nice(0)
go_behind(3)
print(os.nice(0) - before, AUTOGROUP.read_text().split()[-1] if AUTOGROUP.exists() else "none")
"""


def group_niceness(file: Path) -> str:
    """Of a process's autogroup; none where the kernel has no such groups."""
    return file.read_text().split()[-1] if file.exists() else "none"


@pytest.mark.parametrize("leads", [True, False])
def test_a_session_goes_behind_with_who_leads_it(leads: bool) -> None:
    ours = group_niceness(AUTOGROUP)
    done = subprocess.run(
        [sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=True, start_new_session=leads
    )
    here = "none" if ours == "none" else "3" if leads else ours
    assert done.stdout.split() == [str(min(3, 19 - os.nice(0))), here]
    assert group_niceness(AUTOGROUP) == ours


def test_readers_of_bodies_go_behind(service: Running) -> None:
    assert service.client.post("/v1/plans:resolve", json={"graph": wire()}).status_code == 202
    pid = service.app.state.context.readers._source._process.pid
    assert group_niceness(Path(f"/proc/{pid}/autogroup")) in (str(NICE), "none")
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(NICE + os.nice(0), 19)
