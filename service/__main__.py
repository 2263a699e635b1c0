"""The process of the command line, `fuseplan` and `python -m service`: nobody but us writes to its standard output."""

import signal
import sys
from importlib import import_module

from service import standard_output
from service.collector import resting


def main() -> int:
    """Runs the command line of this process and returns its exit code, see `service.cli.app`."""
    # An interrupt while all is imported ends the process as it ends any program: libraries would make something else of
    # an exception.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    standard_output.claim()
    with resting():
        run = import_module("service.cli").main  # only now: libraries may print as they are imported
    signal.signal(signal.SIGINT, before)
    code = run()
    # What is to be told has been told, and the exit code tells the same: an interrupt while Python ends, which takes
    # some hundredths of a second, would put a death by a signal, or a traceback, in its place.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


if __name__ == "__main__":
    sys.exit(main())
