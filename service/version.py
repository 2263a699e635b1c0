"""The version of Fuseplan that is running."""

from importlib.metadata import PackageNotFoundError, version


def _version() -> str:
    try:
        return version("fuseplan")
    except PackageNotFoundError:  # run from a folder, without an installation
        return "0"


VERSION = _version()
