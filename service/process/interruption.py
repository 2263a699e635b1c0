"""Ctrl-C in the process of the command line: one line, exit code 130 and no traceback, whenever it comes.

Nothing is imported here that Python has not loaded by itself, so that an interrupt is heard from the first line on.
"""

# `signal` without its enumerations, which take longer to load than all that is done here.
import _signal  # pyright: ignore[reportMissingImports]
import os
import sys

TYPE_CHECKING = False  # typing.TYPE_CHECKING, without loading that
if TYPE_CHECKING:
    import logging
    from types import FrameType

CODE = 130
_LINE = b"error: interrupted\n"
_CURSOR = b"\x1b[?25h"  # shows it, where a bar of progress hid it
_AGAIN_SECONDS = 0.01  # until it is looked again whether an exception can be raised
_IMPORTS = ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
_STDERR = 2


class _State:
    """State of this process. installed: the process is the command line's own, and does not ignore interrupts. raised:
    `strike` has handled an interrupt. said: the line on standard error was written by `say`."""

    installed = False
    raised = False
    said = False


def listen() -> None:
    """From now on an interrupt ends the process at once: there is nothing to lose before a command begins. Where
    whoever started us lets it ignore interrupts, it goes on to."""
    if _signal.getsignal(_signal.SIGINT) is not _signal.default_int_handler:
        return
    _State.installed = True
    _signal.signal(_signal.SIGINT, _end)


def begin() -> None:
    """A command begins: from now on an interrupt raises KeyboardInterrupt, so that all that it opened is closed, and a
    second one ends the process at once. Does nothing without `listen`."""
    if _State.installed:
        _signal.signal(_signal.SIGALRM, _look_again)
        sys.unraisablehook = _unraisable
        if (logging := sys.modules.get("logging")) is not None and logging.lastResort is not None:
            logging.lastResort.addFilter(is_to_be_told)
        _signal.signal(_signal.SIGINT, lambda _, frame: strike(frame))


def finish() -> None:
    """The command has ended and told its result, as the exit code does: nothing is heard any more. While Python ends,
    which takes some hundredths of a second, an interrupt would put a traceback in its place."""
    if _State.installed:
        _signal.signal(_signal.SIGINT, _signal.SIG_IGN)
        _signal.signal(_signal.SIGALRM, _signal.SIG_IGN)


def say() -> None:
    """Writes the line "error: interrupted" to standard error."""
    _State.said = True
    _write(_LINE)


def strike(frame: "FrameType | None") -> None:
    """Handles an interrupt that ends the command: the first raises KeyboardInterrupt, a second one ends the process;
    without `listen` each raises. frame: the one that the handler got."""
    if not _State.installed:
        raise KeyboardInterrupt
    if _State.raised:
        _end()
    _State.raised = True
    raise_in(frame)


def raise_in(frame: "FrameType | None") -> None:
    """Raises KeyboardInterrupt; a little later where a module is being imported: libraries would make another error of
    it, or leave half of themselves behind."""
    if _State.installed and _is_importing(frame):
        _signal.setitimer(_signal.ITIMER_REAL, _AGAIN_SECONDS)
        return
    raise KeyboardInterrupt


def _look_again(_: int, frame: "FrameType | None") -> None:
    raise_in(frame)


def _is_importing(frame: "FrameType | None") -> bool:
    while frame is not None:
        if frame.f_code.co_filename in _IMPORTS:
            return True
        frame = frame.f_back
    return False


def _unraisable(raised: "sys.UnraisableHookArgs") -> None:
    """Where Python drops an exception, as in what is called when an object goes away, it is raised again elsewhere."""
    if issubclass(raised.exc_type, KeyboardInterrupt):
        _signal.setitimer(_signal.ITIMER_REAL, _AGAIN_SECONDS)
    else:
        sys.__unraisablehook__(raised)


def is_to_be_told(record: "logging.LogRecord") -> bool:
    """Whether a log says more than that there was an interrupt: libraries log what they see of it, and raise it
    again."""
    if record.exc_info and isinstance(record.exc_info[1], KeyboardInterrupt):
        return False
    text = record.getMessage().rstrip()  # Starlette and uvicorn hand a traceback of what ended a start on as text
    last = text.rpartition("\n")[2] if text.startswith("Traceback") else ""
    cancelled = _State.raised and last.startswith("asyncio.exceptions.CancelledError")
    return not (cancelled or last.startswith("KeyboardInterrupt"))


def _end(*_: object) -> None:
    if not _State.said:
        _write(_LINE)
    if _State.raised and os.isatty(_STDERR):
        _write(_CURSOR)
    os._exit(CODE)


def _write(line: bytes) -> None:
    try:
        os.write(_STDERR, line)
    except OSError:
        return  # nobody is there to read it
