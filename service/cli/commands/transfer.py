"""`fuseplan plans export` and `import`: plans and measurements in a file, to be moved between databases."""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from codegen.sandbox.object_cache import ObjectCache
from fusion_ir.errors import FormatError
from fusion_ir.records import Plan
from service.cli.errors import bad_input, failed, in_file
from service.cli.graph_or_plan import load_plan
from service.cli.near_files import near_files
from service.cli.options import Cache, Db, Json, Target
from service.cli.plan_view import KEY_DIGITS
from service.cli.terminal import print_json, say
from service.settings import Settings, load
from service.transfer.export import ExportError, export
from service.transfer.importing import Importer, ImportOutcome
from service.transfer.reading import ExportContent, read_export
from service.wording.formatting import count, expected
from tuning_db.store import Store

PAGE = 200

PlanKeys = Annotated[
    list[str] | None, typer.Argument(metavar="PLAN_KEY...", help="Plans' keys, or the beginnings of some.")
]
All = Annotated[bool, typer.Option("--all", help="Every plan that answers a request.")]
File = Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="File to write, else stdout.")]
Given = Annotated[str, typer.Argument(metavar="FILE", help="A file of `fuseplan plans export`; - is standard input.")]
Force = Annotated[bool, typer.Option("--force", help="Replace stored plans even where they are not slower.")]


def export_plans(plans: PlanKeys = None, all_: All = False, output: File = None, db: Db = None) -> None:
    """Write plans and the measurements of their graphs to a file: what was decided, never code."""
    if bool(plans) == all_:
        raise bad_input("expected keys of plans, or --all")
    with Store(load({"db": db}).db) as store:
        chosen = list(_all(store)) if all_ else [load_plan(store, key) for key in dict.fromkeys(plans or ())]
        if not chosen:
            raise bad_input(f"there are no plans in {store.place}")
        try:
            with _writing(output) as file:
                rows = export(store, list(dict(chosen).items()), file)
        except ExportError as error:
            raise failed(str(error)) from error
    say(f"exported {count(len(chosen), 'plan')} and {count(rows, 'measurement')}")


def import_plans(
    file: Given,
    force: Force = False,
    target: Target = None,
    db: Db = None,
    cache: Cache = None,
    json: Json = False,
) -> None:
    """Make the plans of an export anew: generate, compile, check and time them here, and keep the faster ones; for
    GPUs that are not here, generate, compile and predict them."""
    settings = load({"target": target, "db": db, "cache": cache})
    content = _read(file)
    targets = {settings.target.partition(":")[0]: settings.target}

    def told(outcome: ImportOutcome) -> None:
        if not json:
            say(_line(outcome))

    with Store(settings.db) as store, _importer(store, settings, targets, force) as importer:
        outcomes = importer.plans(content, told)
        rows = importer.measurements(content)
    if json:
        print_json({"plans": [asdict(outcome) for outcome in outcomes], "measurements": rows})
    else:
        say(f"imported {count(rows, 'measurement')}; {len(content.trials) - rows} were here already or not taken")
    refused = sum(outcome.result == "refused" for outcome in outcomes)
    if refused:
        raise failed(f"{file}: {count(refused, 'plan')} refused")


def _importer(store: Store, settings: Settings, targets: Mapping[str, str], force: bool) -> Importer:
    return Importer(store, ObjectCache(settings.cache, store.seal()), targets, force=force)


def _all(store: Store) -> Iterator[tuple[str, Plan]]:
    token: str | None = None
    while True:
        page = store.plans.plans(page_token=token, limit=PAGE)
        yield from (load_plan(store, row.plan_key) for row in page.items if row.state != "failed")
        token = page.next_page_token
        if token is None:
            return


@contextmanager
def _writing(output: Path | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that is there only when it is whole."""
    if output is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        handle, name = tempfile.mkstemp(dir=output.absolute().parent, prefix=f".{output.name}-")
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
            os.replace(name, output)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise bad_input(f"{output}: {error.strerror or error}") from error


def _read(argument: str) -> ExportContent:
    name = "standard input" if argument == "-" else argument
    try:
        if argument == "-":
            return read_export(sys.stdin.buffer)
        with Path(argument).open("rb") as file:
            return read_export(file)
    except FormatError as error:
        raise in_file(name, error) from error
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        if isinstance(error, IsADirectoryError):
            raise bad_input(f"{argument}: expected a file of `fuseplan plans export`, got a folder") from error
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        near = near_files(argument) if isinstance(error, FileNotFoundError) else ""
        raise bad_input(f"{argument}: {reason}{near}") from error


def _line(outcome: ImportOutcome) -> str:
    timed = outcome.time_us is not None or outcome.predicted_us is not None
    took = f"  {expected(outcome.time_us, outcome.predicted_us)}" if timed else ""
    stored = f" as {outcome.plan_key[:KEY_DIGITS]}" if outcome.result == "stored" and outcome.plan_key else ""
    return f"{outcome.result:9} {outcome.key[:KEY_DIGITS]}{stored}{took}  {outcome.detail}"
