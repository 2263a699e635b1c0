"""`python -m benchmarks.tuner`."""

import sys

from benchmarks.tuner.run import main

if __name__ == "__main__":
    sys.exit(main())
