"""The process of the command line, `fuseplan` and `python -m service`: nobody but us writes to its standard output."""

from service.process import interruption

if __name__ == "__main__":
    interruption.listen()  # before anything else is imported

import sys
from importlib import import_module

from service.process import standard_output
from service.process.gc_pause import Resting


def main() -> int:
    """Runs the command line of this process and returns its exit code, see `service.cli.app`."""
    interruption.listen()
    standard_output.claim()
    with Resting():
        run = import_module("service.cli").main  # only now: libraries may print as they are imported
    code = run()
    interruption.finish()
    return code


if __name__ == "__main__":
    sys.exit(main())
