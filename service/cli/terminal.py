"""Where output goes: results to stdout, everything else to stderr; progress only where a person watches."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from service.wording.formatting import duration, visible

if TYPE_CHECKING:
    from rich.progress import Progress

    from scheduler.budget import Event

PLAIN_WIDTH = 80  # of tables where stdout is no terminal and COLUMNS does not say: what a mail or a log has room for
JSON_WIDTH = 110  # of a line of JSON that is laid out


class SafeConsole(Console):
    """A console on which text is text: control characters that names and messages bring along are shown, not sent."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control is None and not segment.text.isprintable():
                yield Segment(visible(segment.text, kept="\n"), segment.style)
            else:
                yield segment


def out() -> Console:
    """Console on today's stdout (tests replace it)."""
    return SafeConsole(
        width=None if sys.stdout.isatty() else _plain_width(), highlight=False, emoji=False, soft_wrap=False
    )


def _plain_width() -> int:
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and columns.isascii() and 0 < int(columns) < 10_000 else PLAIN_WIDTH


def err() -> Console:
    """Console on stderr."""
    return SafeConsole(stderr=True, highlight=False, emoji=False, soft_wrap=True)


def show(*renderables: RenderableType) -> None:
    """Prints to stdout; where that is no terminal, without the blanks that fill tables up to their width."""
    console = out()
    if console.is_terminal:
        console.print(*renderables, sep="\n")
        return
    with console.capture() as capture:
        console.print(*renderables, sep="\n")
    sys.stdout.write("\n".join(line.rstrip() for line in capture.get().split("\n")))


def print_json(value: Any) -> None:
    """One JSON document on stdout, laid out for reading: what fits a line stands on one."""
    sys.stdout.write(_json(value, "") + "\n")


def _json(value: Any, indent: str) -> str:
    line = json.dumps(value, allow_nan=False)
    if len(indent) + len(line) <= JSON_WIDTH or not isinstance(value, dict | list) or not value:
        return line
    inner = indent + "  "
    if isinstance(value, dict):
        items = [f"{inner}{json.dumps(str(k))}: {_json(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + _json(v, inner) for v in value) + f"\n{indent}]"


def say(text: str) -> None:
    """A line for a person on stderr."""
    err().print(text, markup=False)


def complain(text: str) -> None:
    """Prints why a command failed, in a line on stderr."""
    err().print(Text.assemble(("error: ", "bold red"), text))


_PHASES = {
    "candidates": "finding segments",
    "segments": "timing kernels",
    "plans": "timing whole plans",
    "done": "storing",
}


def phase(state: Mapping[str, Any] | None) -> str:
    """The state of a search in words, from the fields of an `Event` that are there: "timing kernels, 30 timed"."""
    if not state:
        return "starting"
    words = [_PHASES.get(str(state.get("phase")), "searching")]
    if state.get("measured") is not None:
        words.append(f"{state['measured']} timed")
    if state.get("best_us") is not None:
        words.append(f"best {duration(float(state['best_us']))}")
    return ", ".join(words)


def print_line(line: str) -> None:
    """A line on stdout at once, so that who reads a pipe sees it when it happens."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class SearchProgress:
    """Shows how a search goes. Off a terminal it tells that one begins, and nothing more."""

    def __init__(self, bar: "Progress | None", seconds: float) -> None:
        self._bar = bar
        self._task = bar.add_task("starting", total=seconds) if bar is not None else None

    def tell(self, text: str) -> None:
        """A line for a person on stderr, above the bar where there is one, also where nobody watches."""
        if self._bar is None:
            say(text)
        else:
            self._bar.console.print(text, markup=False)

    def on_search(self, event: "Event") -> None:
        """Shows an event of `scheduler.tune`."""
        self.show(asdict(event))

    def show(self, state: Mapping[str, Any] | None) -> None:
        """Updates the bar. `state`: the fields of an `Event` that are there; a server passes them on as JSON."""
        if self._bar is None or self._task is None or not state:
            return
        self._bar.update(self._task, description=phase(state))
        if state.get("seconds") is not None:
            self._bar.update(self._task, completed=float(state["seconds"]))


@contextmanager
def search_progress(seconds: float) -> Iterator[SearchProgress]:
    """A bar on stderr for a search that may take `seconds`; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield SearchProgress(None, seconds)
        return
    from rich.progress import (  # noqa: PLC0415  where nobody watches, nothing of it is loaded
        BarColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24), TimeElapsedColumn())
    with Progress(*columns, console=err(), transient=True) as bar:
        yield SearchProgress(bar, seconds)
