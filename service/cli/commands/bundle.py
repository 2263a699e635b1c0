"""`fuseplan plans bundle`: a plan with its kernels as a folder, which the client runs without Fuseplan."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from codegen.sandbox.object_cache import CacheError, ObjectCache
from codegen.toolchain.compiler import CompilerMissing
from fusion_ir.records import Plan
from service.bundling.folder import write_bundle
from service.bundling.subject import Subject, did_run, verified
from service.cli.errors import CommandError, bad_input, failed
from service.cli.graph_or_plan import load_plan
from service.cli.options import Db, Json, PlanKey
from service.cli.plan_view import KEY_DIGITS
from service.cli.terminal import print_json, say
from service.planning.executor import executor, runs_here
from service.settings import load
from service.signing.key import open_key
from service.wording.formatting import count
from tuning_db.store import Store

Folder = Annotated[Path | None, typer.Argument(metavar="FOLDER", help="A new folder, or an empty one.")]
Output = Annotated[Path | None, typer.Option("-o", "--output", metavar="FOLDER", help="The same, as an option.")]


def bundle_plan(plan: PlanKey, folder: Folder = None, output: Output = None, db: Db = None, json: Json = False) -> None:
    """Write a plan for a CUDA device or a CPU to a folder: its kernels with their sources, a program that runs them by
    `fuseplan_client`, and a page on what they compute and what was verified; signed, see `fuseplan key show`."""
    given = [path for path in (folder, output) if path is not None]
    if len(given) != 1:
        raise bad_input(f"expected one folder, as FOLDER or with -o, got {len(given) or 'none'}")
    (folder,) = given
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise bad_input(f"{folder}: expected a new folder, or an empty one")
    settings = load({"db": db})
    with Store(settings.db) as store:
        key, found = load_plan(store, plan)
        if found.device.target != "cuda" and not runs_here(found):
            raise _unfit(key, found)
        subject = _subject(store, plan, key, found)
        if found.device.target == "cpu":
            subject = replace(subject, executor=_executor(settings.cache, store))
    try:
        write_bundle(subject, folder, open_key(Path(settings.signing_key)))
    except OSError as e:
        raise failed(f"{folder} cannot be written: {e.strerror}") from e
    ran, checked = did_run(found), verified(found, subject.made)
    if json:
        print_json(
            {
                "plan_key": key,
                "folder": str(folder),
                "binaries": sorted(subject.binaries),
                "sources": sorted(subject.source_files.values()),
                "ran": ran,
                "verified": checked,
            }
        )
    else:
        say(f"wrote the plan and {count(len(subject.binaries), 'kernel')} to {folder}; run it there: python run.py")
        say(checked)


def _subject(store: Store, argument: str, key: str, plan: Plan) -> Subject:
    """The plan with all that it needs. Raises CommandError."""
    summary, body = store.plans.summary(key), store.plans.plan(key)
    state = (summary.state if summary is not None else None) or "superseded"
    if state == "failed":
        raise failed(f"{argument}: the plan failed its last check, and is given to nobody: tune the graph again")
    binaries = {step.binary: store.plans.binary(step.binary) for step in plan.steps}
    missing = [sha for sha, data in binaries.items() if data is None]
    if missing or body is None or summary is None:
        raise failed(f"{argument}: {count(len(missing), 'kernel')} of it are not in {store.place}: tune again")
    sources = {step.source: store.plans.source(step.source) for step in plan.steps if step.source}
    graph = store.graphs.graph(plan.graph_key)
    named = None if graph is None else graph.named()
    return Subject(
        key,
        body,
        plan,
        state,
        summary.created,
        named.input_names if named else tuple(f"in{i}" for i in range(len(plan.inputs))),
        named.output_names if named else tuple(f"out{i}" for i in range(len(plan.outputs))),
        named,
        {sha: data for sha, data in binaries.items() if data is not None},
        {sha: text for sha, text in sources.items() if text is not None},
    )


def _executor(cache: str, store: Store) -> tuple[str, bytes]:
    """The executor for a plan of a CPU. Raises CommandError."""
    try:
        return executor(ObjectCache(cache, store.seal()))
    except (CompilerMissing, CacheError) as e:
        raise failed(f"what runs plans for CPUs cannot be compiled: {e}") from e


def _unfit(key: str, plan: Plan) -> CommandError:
    """The error for a plan that the client cannot run, with what to do instead."""
    short, device = key[:KEY_DIGITS], plan.device
    if device.target == "cpu":
        return bad_input(
            f"{short}: the plan is for CPUs of {device.arch}, and what runs it is compiled for this machine's: bundle "
            "it on such a machine"
        )
    return bad_input(
        f"{short}: a bundle is run on a GPU or a CPU, and this plan is for {device.name} ({device.target}): `fuseplan "
        "tune GRAPH --target h200 --seconds 0` makes one for a GPU that is not here"
    )
