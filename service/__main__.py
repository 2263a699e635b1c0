"""The process of the command line, `fuseplan` and `python -m service`: nobody but us writes to its standard output."""

import sys
from importlib import import_module

from service import standard_output


def main() -> int:
    """Runs the command line of this process and returns its exit code, see `service.cli.app`."""
    standard_output.claim()
    run = import_module("service.cli").main  # only now: libraries may print as they are imported
    return run()


if __name__ == "__main__":
    sys.exit(main())
