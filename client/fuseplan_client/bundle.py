"""Plans as folders: plan.json, in binaries/ what its steps name by sha256; names and what was checked: bundle.json."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuseplan_client.names import Names
from fuseplan_client.plan import Plan, PlanError, read_plan
from fuseplan_client.signatures import TrustedKeys, bundle_message, trusted_keys

PLAN = "plan.json"
ABOUT = "bundle.json"
SIGNATURE = "bundle.sig"
BINARIES = "binaries"


class BundleError(OSError):
    """A folder is no bundle, or a file in it is not what its name says."""


@dataclass(frozen=True)
class Bundle:
    """A plan with its binaries, by sha256. key: the plan's own sha256. verified: what its maker says was checked of it,
    in sentences. executor: sha256 and bytes of what runs the steps of a plan for the CPU."""

    key: str
    plan: Plan
    binaries: dict[str, bytes]
    names: Names
    verified: str = ""
    executor: tuple[str, bytes] | None = None


def read_bundle(folder: Path | str, *, server_keys: Iterable[str] | None = None) -> Bundle:
    """Reads and verifies a folder; one without bundle.json has tensors called in0, out0, ... Raises BundleError,
    PlanError.

    server_keys: public keys, those in FUSEPLAN_SERVER_KEY by default: where there are any, the bundle has to be signed
    by one of them, and is not looked into before. Raises SignatureError where it is not.
    """
    place, reading = Path(folder), PLAN
    keys = trusted_keys(server_keys)
    try:
        body = (place / PLAN).read_bytes()
        said = (place / ABOUT).read_bytes() if keys or (place / ABOUT).exists() else None
        if keys and said is not None:
            _check_signature(place, keys, body, said)
        plan = read_plan(json.loads(body))
        binaries = {sha: _binary(place, sha) for sha in dict.fromkeys(step.binary for step in plan.steps)}
        reading = ABOUT
        about = None if said is None else json.loads(said)
    except FileNotFoundError as e:
        raise BundleError(f"{place} is no bundle of a plan: {e.filename} is missing") from e
    except ValueError as e:
        if isinstance(e, PlanError):
            raise
        raise BundleError(f"{place / reading} is no JSON: {e}") from e
    key = hashlib.sha256(body).hexdigest()
    if about is None:
        return Bundle(key, plan, binaries, Names.plain(len(plan.inputs), len(plan.outputs)))
    names, verified = _names(place / ABOUT, about, key, plan), str(about.get("verified", ""))
    sha = about.get("executor")
    return Bundle(key, plan, binaries, names, verified, (sha, _binary(place, sha)) if sha else None)


def _check_signature(place: Path, keys: TrustedKeys, body: bytes, said: bytes) -> None:
    """Raises SignatureError unless plan and names are those that one of the keys signed. OSError."""
    file = place / SIGNATURE
    signature = file.read_bytes()[:1000].decode("ascii", "replace") if file.exists() else ""
    keys.check(signature, bundle_message(body, said), f"the bundle {place}")


def _names(file: Path, about: Any, key: str, plan: Plan) -> Names:
    try:
        of, found = about["plan_key"], [[str(t["name"]) for t in about[what]] for what in ("inputs", "outputs")]
    except (KeyError, TypeError) as e:
        raise BundleError(f"{file} says nothing of plan_key, inputs and outputs with names: {e}") from e
    if of != key:
        raise BundleError(f"{file} is about plan {of}, expected {key}, which lies beside it")
    for what, names, specs in zip(("inputs", "outputs"), found, (plan.inputs, plan.outputs), strict=True):
        if len(names) != len(specs) or len(set(names)) != len(names):
            raise BundleError(f"{file}: expected {len(specs)} {what} with names of their own, got {names}")
    return Names(tuple(found[0]), tuple(found[1]))


def _binary(folder: Path, sha: str) -> bytes:
    if len(sha) != 64 or not set(sha) <= set("0123456789abcdef"):
        raise BundleError(f"a step names the binary {sha!r}, expected a sha256")
    data = (folder / BINARIES / sha).read_bytes()
    if hashlib.sha256(data).hexdigest() != sha:
        raise BundleError(f"{folder / BINARIES / sha} does not hash to its name")
    return data
