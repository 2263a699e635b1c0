"""The start-up check that our top-level packages are ours.

Fuseplan's import packages have plain names (`scheduler`, `service`), so another distribution in the same environment,
or a folder earlier on the path, can take one of them. That must not show as a strange AttributeError later.
"""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("fusion_ir", "codegen", "scheduler", "tuning_db", "service")
HOME = Path(__file__).resolve().parents[2]


class ShadowError(Exception):
    """A top-level name of Fuseplan's belongs to something else; the message says to what, and what to do."""


def check(names: Sequence[str] = PACKAGES, home: Path = HOME) -> None:
    """Raises ShadowError unless each of `names` would be imported from below `home`. Imports nothing."""
    for name in names:
        expected = home / name / "__init__.py"
        found = _origin(name)
        if found is None:
            raise ShadowError(f"the package {name!r} is missing; it should be {expected}. Install Fuseplan again.")
        if found != expected:
            raise ShadowError(
                f"the package {name!r} is {found}{_owner(name)}, not Fuseplan's {expected}. Fuseplan is an "
                f"application: give it an environment of its own, python3 -m venv fuseplan-env, and install it there."
            )


def _origin(name: str) -> Path | None:
    loaded = sys.modules.get(name)
    spec = loaded.__spec__ if loaded is not None else find_spec(name)
    if spec is None:
        return None
    if spec.origin is not None:
        return Path(spec.origin).resolve()
    folders = list(spec.submodule_search_locations or ())  # a folder without __init__.py
    return Path(folders[0]).resolve() if folders else None


def _owner(name: str) -> str:
    from importlib.metadata import packages_distributions  # noqa: PLC0415  for a message that is hardly ever printed

    owners = sorted(set(packages_distributions().get(name, ())) - {"fuseplan"})
    return f" (installed by {', '.join(owners)})" if owners else ""
