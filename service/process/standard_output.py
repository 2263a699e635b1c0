"""Standard output, which is for results alone: what libraries write to its descriptor goes to standard error."""

import os
import sys

STDIN, STDOUT, STDERR = 0, 1, 2


def claim() -> None:
    """From now on `sys.stdout` alone reaches standard output, for the rest of the process: descriptor 1, which
    libraries of other languages and processes that we start write to, stands for standard error.

    To be called before such libraries are imported. Where a standard descriptor was closed, it stands for nothing
    afterwards: else the next file that is opened, a database perhaps, would have its number, and get what they print.
    """
    for number in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the least free number, which is this one
            os.set_inheritable(opened, True)
    own = os.dup(STDOUT)  # not for processes that we start
    if sys.stdout is not None:
        sys.stdout.flush()
    encoding, errors = (sys.stdout.encoding, sys.stdout.errors) if sys.stdout is not None else ("utf-8", "strict")
    os.dup2(STDERR, STDOUT)
    sys.stdout = os.fdopen(own, "w", encoding=encoding, errors=errors)  # by lines where it is a terminal
