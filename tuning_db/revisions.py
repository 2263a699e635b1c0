"""The revisions of the tables, by the files of their migrations."""

from pathlib import Path

VERSIONS = Path(__file__).with_name("migrations") / "versions"


def revisions() -> tuple[str, ...]:
    """The revisions that this version knows, oldest first: each migration's file begins with its own."""
    return tuple(sorted(path.name.partition("_")[0] for path in VERSIONS.glob("[0-9]*_*.py")))
