"""The commands of `fuseplan` in one table, and how each of them ends."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.markup import escape

from codegen.devices import DeviceError
from codegen.object_cache import CacheError
from codegen.programs import MissingBinary
from codegen.quarantine import DeviceQuarantined
from codegen.slot import SlotError
from codegen.toolchain.compiler import CompilerMissing
from codegen.workbench import RunError
from fusion_ir.errors import FormatError
from scheduler.bench import RequestError
from scheduler.no_plan import NoPlan
from service.cli import batch, config, db, plans
from service.cli.convert import convert
from service.cli.devices import devices
from service.cli.doctor import doctor
from service.cli.errors import BAD_INPUT, FAILED, INTERRUPTED, CommandError
from service.cli.explain import explain
from service.cli.run import run
from service.cli.serve import serve
from service.cli.terminal import err
from service.cli.trials import trials
from service.cli.tune import tune
from service.planner import PlanningError
from service.server import ServeError
from service.settings import SettingsError
from service.version import VERSION
from tuning_db import DatabaseError

app = typer.Typer(
    name="fuseplan",
    help="Finds how to cut a fusion graph into kernels, generates and times them, and keeps the winning plan.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 ok, 1 failed, 2 bad input.",
)
for command in (serve, tune, run, convert, explain, trials, devices, doctor):
    app.command()(command)
app.add_typer(batch.app, name="batch")
app.add_typer(plans.app, name="plans")
app.add_typer(db.app, name="db")
app.add_typer(config.app, name="config")

# Exceptions that end a command with a message instead of a traceback. Anything else is a fault of ours.
EXIT_CODES: dict[type[Exception], int] = {
    SettingsError: BAD_INPUT,
    FormatError: BAD_INPUT,
    DatabaseError: BAD_INPUT,
    CacheError: BAD_INPUT,
    ServeError: BAD_INPUT,
    DeviceError: BAD_INPUT,
    DeviceQuarantined: FAILED,
    CompilerMissing: FAILED,
    PlanningError: FAILED,
    RequestError: BAD_INPUT,
    NoPlan: FAILED,
    RunError: FAILED,
    MissingBinary: FAILED,
    SlotError: FAILED,
}


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"fuseplan {VERSION}\n")
        raise typer.Exit


@app.callback()
def fuseplan(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of all commands."""


def commands() -> dict[str, str]:
    """Every command as it is typed ("tune", "plans list", ...), with the text of its help."""
    return dict(sorted(_commands(app, "")))


def _commands(group: typer.Typer, prefix: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for info in group.registered_commands:
        function = info.callback
        if function is not None:
            found.append((prefix + (info.name or function.__name__), (function.__doc__ or "").strip()))
    for sub in group.registered_groups:
        if sub.typer_instance is not None:
            found += _commands(sub.typer_instance, f"{prefix}{sub.name} ")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code: 0 ok, 1 failed, 2 bad input, 130 interrupted."""
    try:
        app(args=None if arguments is None else list(arguments), prog_name="fuseplan")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        return INTERRUPTED
    except CommandError as error:
        return _end(error, error.code)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`). Python must not complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except tuple(EXIT_CODES) as error:
        return _end(error, next(code for kind, code in EXIT_CODES.items() if isinstance(error, kind)))
    return 0


def _end(error: Exception, code: int) -> int:
    err().print(f"[bold red]error:[/] {escape(str(error))}")
    return code
