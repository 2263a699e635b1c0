"""The shell scripts of docker/: they parse, do what they say, and say what is wrong."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import make_url
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from tests.support.dockerfile import DOCKER

SCRIPTS = sorted(DOCKER.glob("*.sh"))
SHELLS = {"#!/bin/sh": "sh", "#!/usr/bin/env bash": "bash"}
ENTRYPOINT = DOCKER / "entrypoint.sh"


def run(*command: object, **env: str) -> "subprocess.CompletedProcess[str]":
    words = [str(word) for word in command]
    return subprocess.run(words, env={"PATH": os.environ["PATH"], **env}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_parses_and_can_be_run(script: Path) -> None:
    first = script.read_text().splitlines()[0]
    checked = run(SHELLS[first], "-n", script)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert os.access(script, os.X_OK)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_has_nothing_that_shellcheck_finds(script: Path) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    checked = run("shellcheck", script)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(
    "words", [(), ("everything",), ("system", "now"), ("wheel", "/source"), ("fuseplan", "a", "b")]
)
def test_other_steps_than_there_are_end_with_those_that_there_are(words: tuple[str, ...]) -> None:
    done = run(DOCKER / "install.sh", *words)
    assert done.returncode == 2
    assert "expected one of: system; wheel SOURCE FOLDER; fuseplan WHEEL PINS EXTRAS" in done.stderr


def test_the_entry_point_becomes_the_command() -> None:
    """The command runs in the entry point's process, so that signals reach it, with its arguments unchanged."""
    code = "import os, sys; print(os.getpid(), sys.argv[1:])"
    with subprocess.Popen(
        [ENTRYPOINT, sys.executable, "-c", code, "a b", "*"], stdout=subprocess.PIPE, text=True
    ) as it:
        assert it.communicate()[0] == f"{it.pid} {['a b', '*']}\n"
    assert run(ENTRYPOINT, "sh", "-c", "exit 7").returncode == 7


def test_libpq_gets_the_password_out_of_the_file(tmp_path: Path) -> None:
    """The password is the default of connections whose address has none; PGPASSWORD_FILE is not passed on."""
    (tmp_path / "password").write_text("s3cret with spaces\n")
    code = (
        "import os; from psycopg import pq; print([o.val for o in pq.Conninfo.get_defaults() "
        "if o.keyword == b'password'], 'PGPASSWORD_FILE' in os.environ)"
    )
    done = run(ENTRYPOINT, sys.executable, "-c", code, PGPASSWORD_FILE=str(tmp_path / "password"))
    assert (done.stdout, done.stderr) == (f"{[b's3cret with spaces']} False\n", "")
    _, named = PGDialect_psycopg().create_connect_args(make_url("postgresql+psycopg://fuseplan@postgres/fuseplan"))
    assert "password" not in named


def test_a_password_that_cannot_be_read_ends_the_container(tmp_path: Path) -> None:
    done = run(ENTRYPOINT, "echo", "started", PGPASSWORD_FILE=str(tmp_path / "absent"))
    assert done.returncode != 0
    assert done.stdout == ""
    assert str(tmp_path / "absent") in done.stderr


def test_without_a_password_nothing_is_set() -> None:
    assert run(ENTRYPOINT, "sh", "-c", 'echo "${PGPASSWORD-none}"').stdout == "none\n"
