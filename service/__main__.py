"""`python -m service`: the same as `fuseplan`."""

import sys

from service.cli import main

sys.exit(main())
