"""Whether a run is the long one: `make soak` sets FUSEPLAN_RANDOM_GRAPHS to thousands."""

import os
from collections.abc import Sequence
from typing import Any

WHOLE = int(os.environ.get("FUSEPLAN_RANDOM_GRAPHS", "0")) >= 2000


def few_or_all(few: Sequence[Any], rest: Sequence[Any]) -> list[Any]:
    """Parameters of a test marked `soak`: the first few in every run, the rest in the long one as well."""
    return [*few, *(rest if WHOLE else ())]
