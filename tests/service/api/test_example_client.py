"""The example of a client that has nothing of Fuseplan, against a server."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.service_process import ROOT, server

EXAMPLE = ROOT / "docs" / "run_over_http.py"


@pytest.mark.turn("clients")
def test_a_client_without_fuseplan_plans_and_runs(tmp_path: Path) -> None:
    with server(tmp_path) as (_, port):
        for cache in ("miss", "hit"):
            ended = subprocess.run(
                [sys.executable, str(EXAMPLE), f"http://127.0.0.1:{port}"],
                capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False,
            )  # fmt: skip
            told = re.fullmatch(rf"plan [0-9a-f]{{12}}, {cache}; largest difference (.*)\n", ended.stdout)
            assert told, (ended.stdout, ended.stderr)
            assert float(told[1]) < 1e-5
    assert "import fuseplan" not in EXAMPLE.read_text()
