"""The commands of `fuseplan` in one table, and how each of them ends.

What a command needs is imported when it is called: a search takes libraries that take a second to load, help and
version none.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from service.cli.errors import BAD_INPUT, FAILED, INTERRUPTED, CommandError
from service.process import interruption
from service.process.gc_pause import Resting


@dataclass(frozen=True)
class Row:
    """A command. name: as it is typed; place: module and function; summary: its line in a list of commands."""

    name: str
    place: str
    summary: str

    def function(self) -> Callable[..., None]:
        """Imports the module, with what it needs. The function's docstring is the command's help."""
        name, _, function = self.place.partition(":")
        place = f"service.cli.commands.{name}"
        module = sys.modules.get(place)
        if module is None:
            with Resting():
                module = import_module(place)
        return getattr(module, function)


COMMANDS = (
    Row("serve", "serve:serve", "Run the service: HTTP API, dashboard, workers."),
    Row("tune", "tune:tune", "Find the plans of graphs."),
    Row("run", "run:run", "Run a graph, or a stored plan, on tensors of a file."),
    Row("convert", "convert:convert", "Print a graph in another format."),
    Row("explain", "explain:explain", "Show why a plan is as it is."),
    Row("source", "source:source", "Print the generated source of a plan's kernels."),
    Row("trials", "trials:trials", "Show every candidate that was ever tried."),
    Row("trials export", "trials_export:export_trials", "Write trials to a storage of Optuna's."),
    Row("devices", "devices:devices", "Show this machine's devices and their ceilings."),
    Row("doctor", "doctor:doctor", "Check this installation, say what to install."),
    Row("batch submit", "batch:submit", "Submit graphs as a batch."),
    Row("batch list", "batch:list_", "The newest batches, one line each."),
    Row("batch show", "batch:show", "One batch, and what runs of it."),
    Row("batch watch", "batch:watch", "Follow a batch to its end."),
    Row("batch cancel", "batch:cancel", "End what has not ended."),
    Row("batch results", "batch:results", "The plans of a batch, or what has none."),
    Row("plans list", "plans:list_plans", "The newest plans, one line each."),
    Row("plans show", "show:show", "One plan: kernels, times and bounds."),
    Row("plans evict", "plans:evict", "Remove a plan."),
    Row("plans forget", "forget:forget_failure", "Forget that a search failed."),
    Row("plans bundle", "bundle:bundle_plan", "Write a plan and its kernels to a folder."),
    Row("plans export", "transfer:export_plans", "Write plans and measurements to a file."),
    Row("plans import", "transfer:import_plans", "Make the plans of an export anew here."),
    Row("key show", "key:show_key", "The public key that answers are signed with."),
    Row("db upgrade", "db:upgrade", "Bring the tables to the newest revision."),
    Row("db current", "db:current", "Print the revision of the tables."),
    Row("config show", "config:show", "Every setting, and where its value is from."),
)
GROUPS = {
    "batch": "Many graphs for a running server.",
    "plans": "The plans in the database.",
    "key": "The key that answers are signed with.",
    "db": "The database's tables.",
    "config": "Settings.",
}

# Exceptions that end a command with a message instead of a traceback, by their places: what was raised is imported
# already, and what was not need not be. Anything else is a fault of ours.
EXIT_CODES = {
    "service.settings.SettingsError": BAD_INPUT,
    "fusion_ir.errors.FormatError": BAD_INPUT,
    "tuning_db.errors.DatabaseError": BAD_INPUT,
    "codegen.sandbox.object_cache.CacheError": BAD_INPUT,
    "service.server.ServeError": BAD_INPUT,
    "service.signing.key.SigningKeyError": BAD_INPUT,
    "codegen.devices.detection.DeviceError": BAD_INPUT,
    "codegen.devices.quarantine.DeviceQuarantined": FAILED,
    "codegen.toolchain.compiler.CompilerMissing": FAILED,
    "service.planning.planner.PlanningError": FAILED,
    "scheduler.budget.RequestError": BAD_INPUT,
    "scheduler.no_plan.NoPlan": FAILED,
    "codegen.workbench.timing_jobs.RunError": FAILED,
    "codegen.workbench.programs.MissingBinary": FAILED,
    "codegen.sandbox.child_process.SlotError": FAILED,
}

ENDS = "Exit codes: 0 ok, 1 failed, 2 bad input, 130 interrupted."
_CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"]}


class Deferred(TyperCommand):
    """A command of which name and summary are known; the rest is imported when it is called."""

    def __init__(self, row: Row) -> None:
        super().__init__(row.name.split()[-1], help=row.summary, rich_markup_mode=None)
        self._row = row
        self.below: dict[str, Deferred] = {}  # commands whose names begin with this one's: "export" of `trials export`

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Imports the command itself and returns the context that it runs in; handling of interrupts begins here."""
        if args and args[0] in self.below:
            return self.below[args[0]].make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        single = typer.Typer(add_completion=False, rich_markup_mode=None)
        single.command(self.name, context_settings=_CONTEXT)(self._row.function())
        interruption.begin()
        return get_command(single).make_context(info_name, args, parent, **extra)


def _version(wanted: bool) -> None:
    if wanted:
        from service.version import VERSION  # noqa: PLC0415  no command needs it

        sys.stdout.write(f"fuseplan {VERSION}\n")
        raise typer.Exit


def _root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Finds how to cut a fusion graph into kernels, generates and times them, and keeps the winning plan."""


def command_line() -> TyperGroup:
    """All commands and groups of commands."""
    root = typer.Typer(rich_markup_mode=None, no_args_is_help=True, context_settings=_CONTEXT, epilog=ENDS)
    root.callback()(_root)
    line = get_command(root)
    assert isinstance(line, TyperGroup)
    groups = {"": line}
    for name, summary in GROUPS.items():
        groups[name] = TyperGroup(
            name=name, help=summary, no_args_is_help=True, rich_markup_mode=None, context_settings=_CONTEXT
        )
        line.add_command(groups[name], name)
    for row in COMMANDS:
        group, _, name = row.name.rpartition(" ")
        if group in groups:
            groups[group].add_command(Deferred(row), name)
        else:
            leaf = line.commands[group]
            assert isinstance(leaf, Deferred)
            leaf.below[name] = Deferred(row)
    return line


def commands() -> dict[str, str]:
    """Every command as it is typed ("tune", "plans list", ...), with the text of its help."""
    return {row.name: (row.function().__doc__ or "").strip() for row in sorted(COMMANDS, key=lambda r: r.name)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code: 0 ok, 1 failed, 2 bad input, 130 interrupted."""
    try:
        command_line()(args=None if arguments is None else list(arguments), prog_name="fuseplan")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code == INTERRUPTED:  # what Typer makes of a KeyboardInterrupt
            interruption.say()
        return code
    except KeyboardInterrupt:
        interruption.say()
        return INTERRUPTED
    except CommandError as error:
        if error.code == INTERRUPTED:
            interruption.say()
            return INTERRUPTED
        return _end(error, error.code)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`). Python must not complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        code = exit_code(type(error))
        if code is None:
            raise
        return _end(error, code)
    return 0


def exit_code(kind: type[Exception]) -> int | None:
    """The exit code of a command that raised such an exception; None where that is a fault of Fuseplan's own."""
    places = (f"{c.__module__}.{c.__qualname__}" for c in kind.__mro__)
    return next((EXIT_CODES[place] for place in places if place in EXIT_CODES), None)


def _end(error: Exception, code: int) -> int:
    from service.cli.terminal import complain  # noqa: PLC0415  a command that ends well needs no console

    complain(str(error))
    return code
