"""`fuseplan plans bundle`: a plan with its kernels as a folder, which the client runs without Fuseplan."""

from pathlib import Path
from typing import Annotated

import typer

from service.cli.errors import bad_input, failed
from service.cli.options import Db, Json, PlanKey
from service.cli.stored import load_plan
from service.cli.terminal import print_json, say
from service.formatting import count
from service.settings import load
from tuning_db import Store

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder, or an empty one.")]


def bundle_plan(plan: PlanKey, folder: Folder, db: Db = None, json: Json = False) -> None:
    """Write a plan for a CUDA device and its kernels to a folder that `fuseplan_client.load` runs."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise bad_input(f"{folder}: expected a new folder, or an empty one")
    with Store(load({"db": db}).db) as store:
        key, found = load_plan(store, plan)
        if found.device.target != "cuda":
            raise bad_input(f'{plan}: expected a plan for target "cuda", this one is for "{found.device.target}"')
        body = store.plan(key)
        binaries = {step.binary: store.binary(step.binary) for step in found.steps}
        place = store.place
    missing = [sha for sha, data in binaries.items() if data is None]
    if missing or body is None:
        raise failed(f"{plan}: {count(len(missing), 'kernel')} of it are not in {place}: evict it and tune again")
    try:
        (folder / "binaries").mkdir(parents=True, exist_ok=True)
        for sha, data in binaries.items():
            (folder / "binaries" / sha).write_bytes(data or b"")
        (folder / "plan.json").write_bytes(body)  # as stored: its sha256 is the plan's key
    except OSError as e:
        raise failed(f"{folder} cannot be written: {e.strerror}") from e
    if json:
        print_json({"plan_key": key, "folder": str(folder), "binaries": sorted(binaries)})
    else:
        say(f"wrote the plan and {count(len(binaries), 'kernel')} to {folder}")
