"""`python -m benchmarks.bounds`."""

import sys

from benchmarks.bounds.run import main

if __name__ == "__main__":
    sys.exit(main())
