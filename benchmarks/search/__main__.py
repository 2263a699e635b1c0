"""`python -m benchmarks.search`."""

import sys

from benchmarks.search.run import main

if __name__ == "__main__":
    sys.exit(main())
