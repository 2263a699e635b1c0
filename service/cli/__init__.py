"""The command line, `fuseplan`. `main` runs it."""

import sys

from service.cli import shadowed_packages as shadow

try:
    shadow.check()  # before anything else of ours is imported
except shadow.ShadowError as error:
    sys.exit(f"fuseplan: error: {error}")

from service.cli.app import main

__all__ = ["main"]
