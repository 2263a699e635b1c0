"""`python -m benchmarks.seeds`."""

import sys

from benchmarks.seeds.run import main

if __name__ == "__main__":
    sys.exit(main())
