"""The Dockerfile: read by a parser, it says what docker/install.sh, the settings and the commands say."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from service.cli.app import main
from service.settings import describe, load
from tests.support.dockerfile import DOCKER, ROOT, Copy, Run, arguments, instructions, script_variables, stages
from tests.support.whole import in_turn

TARGETS = ("service", "worker", "worker-cuda")
KNOWN = set("ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK RUN USER WORKDIR".split())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SCRIPT = script_variables()


def read_from_context() -> set[str]:
    """Paths of the repository that the build copies or mounts."""
    steps = [step for stage in stages().values() for step in stage.steps]
    copied = {source for step in steps if isinstance(step, Copy) for source in step.sources}
    mounts = [mount for step in steps if isinstance(step, Run) for mount in step.mounts]
    return copied | {mount.source for mount in mounts if mount.stage is None}


def test_it_is_made_of_instructions_that_are_known() -> None:
    assert {name for name, _ in instructions()} == KNOWN
    assert set(TARGETS) <= set(stages())


def test_bases_are_images_of_the_release_that_the_script_installs_on() -> None:
    image = f"debian:{SCRIPT['RELEASE']}-slim"  # a plain name: no host of a registry
    assert arguments() == {"BASE": image, "CUDA_BASE": image}
    bases = {stage.base for stage in stages().values() if stage.parent is None}
    assert bases == {"${BASE}", "${CUDA_BASE}"}
    assert stages()["worker-cuda"].base == "${CUDA_BASE}"


def test_the_release_has_a_python_that_the_project_runs_on() -> None:
    """`requires-python` is a range of minor versions; the script takes Debian's and the later ones of that range."""
    low, high = re.findall(r"3\.(\d+)", PROJECT["project"]["requires-python"])
    taken = [f"3.{minor}" for minor in range(int(low), int(high))]
    text = (DOCKER / "install.sh").read_text()
    case = re.search(r"case \$found in\n\s+(.*)\) ;;", text)
    assert case
    assert [word.replace('"$PYTHON"', SCRIPT["PYTHON"]) for word in case[1].split(" | ")] == taken
    assert {"bookworm": "3.11", "trixie": "3.13"}[SCRIPT["RELEASE"]] == SCRIPT["PYTHON"]


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_as_a_user_without_rights(target: str) -> None:
    assert stages()[target].user == f"{SCRIPT['USER_ID']}:{SCRIPT['USER_ID']}"
    assert stages()[target].last("WORKDIR") == "/", "a folder in which nobody but root can put modules"


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_writes_to_its_volumes_alone(target: str) -> None:
    environment = stages()[target].environment
    made = re.search(r"^  install -d .* -m 700 (.*)$", (DOCKER / "install.sh").read_text(), re.MULTILINE)
    assert made
    folders = made[1].split()
    assert environment["FUSEPLAN_CACHE"] in folders
    assert environment["FUSEPLAN_DB"].removeprefix("sqlite:///").rpartition("/")[0] in folders
    assert environment["FUSEPLAN_SIGNING_KEY"].rpartition("/")[0] in folders
    assert environment["HOME"] in folders
    assert environment["PATH"].split(":")[0] == f"{SCRIPT['PREFIX']}/bin"


@pytest.mark.parametrize("target", TARGETS)
def test_settings_in_an_image_are_settings(target: str) -> None:
    environment = stages()[target].environment
    loaded = load(env=environment)
    assert loaded.db == environment["FUSEPLAN_DB"]
    assert (loaded.host, loaded.allowed_hosts) == ("127.0.0.1", ""), "who publishes a port says so"


def test_every_setting_that_is_named_exists() -> None:
    known = {setting.variable for setting in describe(env={"HOME": "/"})} | {"FUSEPLAN_NAME"}
    named = {(path.name, word) for path in DOCKER.iterdir() if path.is_file()
             for word in re.findall(r"FUSEPLAN_[A-Z_]+", path.read_text())}  # fmt: skip
    assert {word for _, word in named} >= {"FUSEPLAN_DB", "FUSEPLAN_HOST", "FUSEPLAN_ALLOWED_HOSTS", "FUSEPLAN_WORKERS"}
    assert {(file, word) for file, word in named if word not in known} == set()


def test_a_service_begins_with_our_command(capsys: pytest.CaptureFixture[str]) -> None:
    program, *rest = stages()["service"].command
    assert program in PROJECT["project"]["scripts"]
    assert main([*rest, "--help"]) == 0
    assert "Run the service" in capsys.readouterr().out


@pytest.mark.soak
@pytest.mark.parametrize("target", in_turn(["worker", "worker-cuda"], 1))
def test_a_worker_begins_with_our_module(target: str, tmp_path: Path) -> None:
    program, *rest = stages()[target].command
    assert program == "python"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *rest, "--help"], env=env, cwd=tmp_path, capture_output=True, text=True,
                          check=True)  # fmt: skip
    assert "Takes operations from the queue" in done.stdout


def test_what_runs_in_a_container_is_copied_there() -> None:
    """Entry point and health check."""
    for target in TARGETS:
        stage = stages()[target]
        owner = stage if stage.parent is None else stage.parent
        placed = {f"{step.target}{Path(source).name}" for step in owner.steps if isinstance(step, Copy)
                  for source in step.sources}  # fmt: skip
        assert set(stage.entrypoint) <= placed
        assert f"{Path(stage.entrypoint[0]).parent}/alive.py" in placed
    health = stages()["service"].health_command
    assert health[0] == "python"
    assert health[-1] == f"{Path(stages()['service'].entrypoint[0]).parent}/alive.py"


def test_the_port_of_a_service_is_the_default_one() -> None:
    assert stages()["service"].last("EXPOSE") == str(load(env={"HOME": "/"}).port)


def test_images_differ_in_extras_alone() -> None:
    def installed(name: str) -> tuple[list[str], str]:
        run = next(step for step in stages()[name].steps if isinstance(step, Run) and "fuseplan /dist" in step.command)
        *command, extras = run.command.split()
        return command, extras

    assert installed("cpu")[0] == installed("worker-cuda")[0]
    assert installed("worker-cuda")[1] == f"{installed('cpu')[1]},${{CUDA}}"
    assert "/run/constraints.txt" in installed("cpu")[0]
    known = PROJECT["project"]["optional-dependencies"]
    assert [extra for extra in installed("cpu")[1].split(",") if extra not in known] == []
    assert stages()["worker-cuda"].values("ARG") == ["CUDA=cuda13"]
    assert {"cuda12", "cuda13"} <= set(known)
    cpu, cuda = (stages()[name] for name in ("worker", "worker-cuda"))
    assert {k: v for k, v in cuda.environment.items() if not k.startswith("NVIDIA_")} == cpu.environment
    assert (cuda.entrypoint, cuda.command) == (cpu.entrypoint, cpu.command)


def test_the_wheel_has_all_that_it_is_made_of() -> None:
    copied = {source for step in stages()["wheel"].steps if isinstance(step, Copy) for source in step.sources}
    project = PROJECT["project"]
    wanted = {"pyproject.toml", "constraints.txt", project["readme"], *project["license-files"]}
    assert copied == wanted | set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])


def test_the_builder_sees_what_it_takes_and_nothing_else() -> None:
    lines = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == read_from_context()
    assert [rule for rule in rules[1:] if not rule.startswith("!")] == ["**/__pycache__"]
    assert [path for path in read_from_context() if not (ROOT / path).exists()] == []
