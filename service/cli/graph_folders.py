"""GRAPH... arguments: files, and whatever in folders looks like a graph."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from fusion_ir.formats import READERS, looks_like
from service.cli.errors import bad_input
from service.cli.graph_argument import read_bytes
from service.cli.terminal import say

SNIFFED_BYTES = 1 << 20  # of a file in a folder


def graph_files(arguments: Sequence[str]) -> list[str]:
    """The files to read, each once: those named, and those below folders that a reader recognises by their text.

    Other files in folders are named on stderr. Raises CommandError where a folder cannot be read or holds no graph.
    """
    found: dict[str, None] = {}
    for argument in arguments:
        if argument != "-" and Path(argument).is_dir():
            inside = list(_inside(Path(argument)))
            if not inside:
                endings = ", ".join(suffix for reader in READERS for suffix in reader.suffixes)
                raise bad_input(
                    f"{argument}: no file in this folder, or below it, looks like a graph; files are known by their "
                    f"text, whatever their names, and usual ones end in {endings}"
                )
            found |= dict.fromkeys(inside)
        else:
            found[argument] = None
    return list(found)


def _inside(folder: Path) -> Iterator[str]:
    """In the order of their names, folders within it too, hidden ones aside."""
    try:
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
    except OSError as error:
        raise bad_input(f"{folder}: {error.strerror or error}") from error
    for path in paths:
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        if looks_like(read_bytes(str(path), SNIFFED_BYTES).decode(errors="replace")) is None:
            say(f"skipped {path}: no reader recognises it")
        else:
            yield str(path)
