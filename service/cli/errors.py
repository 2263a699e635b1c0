"""How a command ends that does not end well: a line on stderr, exit code 1 (failed) or 2 (bad input), no traceback."""

from fusion_ir.errors import FormatError

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


class CommandError(Exception):
    """A command cannot go on. The message is for the person at the terminal and names the place."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def bad_input(message: str) -> CommandError:
    """The error for wrong input: exit code 2."""
    return CommandError(message, BAD_INPUT)


def failed(message: str) -> CommandError:
    """The error for work that failed on good input: exit code 1."""
    return CommandError(message, FAILED)


def in_file(name: str, error: FormatError) -> CommandError:
    """The error for bad input in a file, with its place there: `graph.json:12:5: reason` for "12:5",
    `graph.json: /nodes/3: reason` for "/nodes/3"."""
    if not error.place:
        return bad_input(f"{name}: {error.reason}")
    glue = ":" if error.place[0].isdigit() else ": "
    return bad_input(f"{name}{glue}{error.place}: {error.reason}")
