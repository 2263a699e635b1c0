"""docker/Dockerfile as tests read it: its stages, and what a container of one begins with."""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dockerfile_parse import DockerfileParser

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"


@dataclass(frozen=True)
class Mount:
    """A `--mount` of a RUN: `source` in the folder of the build, or in another stage."""

    source: str
    target: str
    stage: str | None


@dataclass(frozen=True)
class Copy:
    """A COPY from the folder of the build."""

    sources: tuple[str, ...]
    target: str


@dataclass(frozen=True)
class Run:
    """A RUN: what is mounted for it, and the shell's command."""

    mounts: tuple[Mount, ...]
    command: str


@dataclass(frozen=True)
class Stage:
    """One stage, with all that it has of the stage it is built from. `base`: as written, a stage or an image."""

    name: str
    base: str
    instructions: tuple[tuple[str, str], ...]
    parent: "Stage | None"

    def values(self, instruction: str) -> list[str]:
        """Values of every such instruction, those of the parent stages first."""
        own = [value for name, value in self.instructions if name == instruction]
        return [*(self.parent.values(instruction) if self.parent else ()), *own]

    def last(self, instruction: str) -> str | None:
        """Value of the last such instruction, which overrides the others; None where there is none."""
        return next(reversed(self.values(instruction)), None)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of a container's processes, by ENV."""
        pairs = (pair.partition("=") for value in self.values("ENV") for pair in shlex.split(value))
        return {name: value for name, _, value in pairs}

    @property
    def user(self) -> str:
        """User and group ids, as `10001:10001`."""
        return self.last("USER") or "0:0"

    @property
    def entrypoint(self) -> list[str]:
        """ENTRYPOINT, in the form that takes no shell."""
        return json.loads(self.last("ENTRYPOINT") or "[]")

    @property
    def command(self) -> list[str]:
        """CMD, in the form that takes no shell."""
        return json.loads(self.last("CMD") or "[]")

    @property
    def health_command(self) -> list[str]:
        """The command that HEALTHCHECK runs, [] where there is none."""
        _, found, command = (self.last("HEALTHCHECK") or "").partition("CMD")
        return json.loads(command) if found else []

    @property
    def steps(self) -> "list[Copy | Run]":
        """COPY and RUN of this stage alone, in order."""
        made: list[Copy | Run] = []
        for name, value in self.instructions:
            if name == "COPY":
                *sources, target = shlex.split(value)
                made.append(Copy(tuple(sources), target))
            elif name == "RUN":
                made.append(_run(value))
        return made


def _run(value: str) -> Run:
    words = value.split()
    mounts: list[Mount] = []
    while words and words[0].startswith("--"):
        option = words.pop(0)
        assert option.startswith("--mount=type=bind,"), option
        facts = dict(fact.split("=", 1) for fact in option.removeprefix("--mount=").split(","))
        mounts.append(Mount(facts["source"], facts["target"], facts.get("from")))
    return Run(tuple(mounts), " ".join(words))


def instructions() -> list[tuple[str, str]]:
    """Every instruction and its value, in order, comments left out."""
    parser = DockerfileParser(str(DOCKER / "Dockerfile"), env_replace=False)
    return [(i["instruction"], i["value"]) for i in parser.structure if i["instruction"] != "COMMENT"]


def arguments() -> dict[str, str]:
    """Build arguments ahead of the first stage, with their defaults."""
    found: dict[str, str] = {}
    for name, value in instructions():
        if name == "FROM":
            break
        assert name == "ARG", name
        argument, _, default = value.partition("=")
        found[argument] = default
    return found


@cache
def stages() -> dict[str, Stage]:
    """Stages of the Dockerfile by name."""
    found: dict[str, Stage] = {}
    for base, name, body in _bodies(instructions()):
        found[name] = Stage(name, base, tuple(body), found.get(base))
    return found


def _bodies(listed: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Base, name and instructions of each stage."""
    starts = [n for n, (name, _) in enumerate(listed) if name == "FROM"]
    for start, end in zip(starts, [*starts[1:], len(listed)], strict=True):
        match = re.fullmatch(r"(\S+) AS (\S+)", listed[start][1])
        assert match, listed[start]
        yield match[1], match[2], list(listed[start + 1 : end])


def script_variables() -> dict[str, str]:
    """The constants at the head of docker/install.sh."""
    return dict(re.findall(r"^([A-Z_]+)=([\w./]+)$", (DOCKER / "install.sh").read_text(), re.MULTILINE))
