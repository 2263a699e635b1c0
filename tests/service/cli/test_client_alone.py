"""A plan for the CPU in an environment that has the client and nothing of Fuseplan."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.support.whole import WHOLE

ROOT = Path(__file__).resolve().parents[3]


def run(*argv: object, folder: Path, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(
        list(map(str, argv)), capture_output=True, text=True, timeout=280, cwd=folder, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert ended.returncode == code, ended.stderr[-3000:]
    return ended


@pytest.mark.soak
@pytest.mark.skipif(not WHOLE, reason="takes most of a minute, to install: `make soak` runs it")
@pytest.mark.parametrize("graph", ["layer_norm.json", "swiglu.json"])
def test_a_bundle_runs_where_the_client_alone_is_installed(graph: str, tmp_path: Path) -> None:
    """It runs, not with a changed byte of a kernel, and where a key is given with that of its maker alone."""
    home = {f"XDG_{part}_HOME": str(tmp_path / part) for part in ("DATA", "CACHE", "CONFIG")}
    fuseplan = [sys.executable, "-m", "service"]
    made = run(
        *fuseplan, "tune", ROOT / "examples" / graph, "--seconds", 3, "--json", folder=tmp_path,
        PYTHONPATH=str(ROOT), **home,
    )  # fmt: skip
    key = json.loads(made.stdout)["plan_key"]
    run(*fuseplan, "plans", "bundle", key, "bundle", folder=tmp_path, PYTHONPATH=str(ROOT), **home)
    public = run(*fuseplan, "key", "show", folder=tmp_path, PYTHONPATH=str(ROOT), **home).stdout.split()[-1]
    venv.create(tmp_path / "alone", with_pip=True)
    python = tmp_path / "alone" / "bin" / "python"
    pins = {"PIP_CONSTRAINT": str(ROOT / "constraints.txt"), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONPATH": ""}
    run(python, "-m", "pip", "install", "-q", f"{ROOT / 'client'}[openblas,signed]", folder=tmp_path, **pins)
    run(python, "-c", "import fusion_ir", folder=tmp_path, code=1, PYTHONPATH="")
    told = run(python, "bundle/run.py", folder=tmp_path, PYTHONPATH="").stdout
    assert "were the interpreter's, on random inputs" in told
    assert told.count("f32[") + told.count("bf16[") >= 1
    run(python, "bundle/run.py", folder=tmp_path, PYTHONPATH="", FUSEPLAN_SERVER_KEY=public)
    other = public[:4] + ("A" if public[4] != "A" else "B") + public[5:]
    refused = run(python, "bundle/run.py", folder=tmp_path, code=1, PYTHONPATH="", FUSEPLAN_SERVER_KEY=other)
    assert "SignatureError" in refused.stderr
    kernel = max((tmp_path / "bundle" / "binaries").iterdir(), key=lambda f: f.stat().st_size)
    kernel.write_bytes(kernel.read_bytes()[:-1] + b"\1")
    assert "does not hash to its name" in run(python, "bundle/run.py", folder=tmp_path, code=1, PYTHONPATH="").stderr
