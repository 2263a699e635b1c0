"""The start-up check, in interpreters of its own: another package under one of our names."""

import subprocess
import sys
from pathlib import Path

import pytest

from service.cli import shadowed_packages as shadow

ROOT = Path(__file__).resolve().parents[3]


def start(folder: Path) -> subprocess.CompletedProcess[str]:
    """`fuseplan --version` with `folder` before everything else on the path."""
    path = [str(folder), str(ROOT)]
    code = f"import sys; sys.path[:0] = {path!r}; from service.cli import main; sys.exit(main(['--version']))"
    return subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60, cwd=folder)


def test_nothing_is_said_where_all_names_are_ours(tmp_path: Path) -> None:
    ended = start(tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("fuseplan ")


@pytest.mark.sweep(0.35)
@pytest.mark.parametrize("name", ["fusion_ir", "codegen", "scheduler", "tuning_db"])
@pytest.mark.parametrize("kind", ["package", "module"])
def test_another_package_under_one_of_our_names(tmp_path: Path, name: str, kind: str) -> None:
    if kind == "package":
        (tmp_path / name).mkdir()
        intruder = tmp_path / name / "__init__.py"
    else:
        intruder = tmp_path / f"{name}.py"
    intruder.write_text("raise SystemExit('imported')\n")
    ended = start(tmp_path)
    assert ended.returncode == 1
    assert f"the package {name!r} is {intruder}" in ended.stderr
    assert "an environment of its own" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "imported" not in ended.stderr


def test_a_package_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(shadow.ShadowError, match=r"'absent_name' is missing"):
        shadow.check(["absent_name"], tmp_path)
