"""The examples for PyTorch: a block and a training loop, which start a server of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.service_process import ROOT
from tests.support.whole import WHOLE

pytest.importorskip("torch")
# Where the client is not installed, PyTorch finds no back end by its name.
NAMED = "import sys; from torch._dynamo.backends.registry import register_backend as r; "
NAMED += "from fuseplan_client.torch.backend import fuseplan as f; r(f, name='fuseplan') if {new} else None; "
NAMED += "import runpy; sys.argv = {argv!r}; runpy.run_path(sys.argv[0], run_name='__main__')"


def ended(folder: Path, *argv: str) -> str:
    """The output of an example that is run in an empty folder."""
    given = [str(ROOT / "docs" / argv[0]), *argv[1:]]
    code = NAMED.format(new="'fuseplan' not in __import__('torch')._dynamo.list_backends()", argv=given)
    places = {f"XDG_{part}_HOME": str(folder / part) for part in ("DATA", "CACHE", "CONFIG")}
    environment = {**os.environ, **places, "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}", "HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=folder,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.soak
@pytest.mark.skipif(not WHOLE, reason="takes most of a minute: `make soak` runs it")
def test_a_block_says_what_went_where(tmp_path: Path) -> None:
    told = ended(tmp_path, "torch_block.py", "2")
    assert re.search(r"^The call takes [\d,]+ us; eager mode [\d,]+ us, Inductor [\d,]+ us$", told, re.MULTILINE), told
    assert re.search(r"^inference: \d+ of \d+ ops in plans$", told, re.MULTILINE), told
    assert re.search(r"\d+ ops, (planned|refused)", told), told


@pytest.mark.soak
@pytest.mark.skipif(not WHOLE, reason="takes most of a minute: `make soak` runs it")
def test_a_training_loop_learns(tmp_path: Path) -> None:
    told = ended(tmp_path, "torch_training.py", "2", "300")
    losses = [float(x) for x in re.findall(r"loss ([\d.]+)", told)]
    assert len(losses) == 10
    assert losses[-1] < 0.5 * losses[0] < 2.0
