"""Plans as folders: plan.json, and in binaries/ the files that its steps name by sha256."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from fuseplan_client.plan import Plan, read_plan

PLAN = "plan.json"
BINARIES = "binaries"


class BundleError(OSError):
    """A folder is no bundle, or a file in it is not what its name says."""


@dataclass(frozen=True)
class Bundle:
    """A plan with its binaries, by sha256. key: the plan's own sha256."""

    key: str
    plan: Plan
    binaries: dict[str, bytes]


def read_bundle(folder: Path | str) -> Bundle:
    """Reads and verifies a folder. Raises BundleError, PlanError."""
    place = Path(folder)
    try:
        body = (place / PLAN).read_bytes()
        plan = read_plan(json.loads(body))
        binaries = {sha: _binary(place, sha) for sha in dict.fromkeys(step.binary for step in plan.steps)}
    except FileNotFoundError as e:
        raise BundleError(f"{place} is no bundle of a plan: {e.filename} is missing") from e
    except json.JSONDecodeError as e:
        raise BundleError(f"{place / PLAN} is no JSON: {e}") from e
    return Bundle(hashlib.sha256(body).hexdigest(), plan, binaries)


def _binary(folder: Path, sha: str) -> bytes:
    if len(sha) != 64 or not set(sha) <= set("0123456789abcdef"):
        raise BundleError(f"a step names the binary {sha!r}, expected a sha256")
    data = (folder / BINARIES / sha).read_bytes()
    if hashlib.sha256(data).hexdigest() != sha:
        raise BundleError(f"{folder / BINARIES / sha} does not hash to its name")
    return data
