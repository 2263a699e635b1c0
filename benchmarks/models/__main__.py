"""`python -m benchmarks.models`."""

import sys

from benchmarks.models.run import main

if __name__ == "__main__":
    sys.exit(main())
