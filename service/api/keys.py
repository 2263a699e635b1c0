"""Keys in addresses: whole ones, or beginnings of at least four digits that only one of them has."""

import re
from collections.abc import Callable

from service.api.models import KEY
from service.errors import ApiError
from service.wording.key_prefixes import CANDIDATES, several
from tuning_db.prefixes import is_prefix
from tuning_db.store import Store

_KEY = re.compile(KEY)
FORM = "keys are 64 lower-case hexadecimal digits, for which at least the first 4 of them may stand"


def whole_key(store: Store, key: str) -> str:
    """The key of the plan that `key` is, or begins. Raises ApiError `not-found`, `ambiguous-key`."""
    if _KEY.fullmatch(key):
        return key
    if not is_prefix(key):
        raise ApiError("not-found", f"There is no plan with this key: {FORM}.")
    return only_one(key, store.plans.keys, "plan", "plans")


def only_one(prefix: str, beginning_with: Callable[[str, int], list[str]], what: str, plural: str) -> str:
    """The one that begins with `prefix`. Raises ApiError `not-found`, `ambiguous-key`."""
    found = beginning_with(prefix, CANDIDATES + 1)
    if not found:
        raise ApiError("not-found", f"There is no {what} whose key begins with {prefix}.")
    if len(found) > 1:
        raise ApiError("ambiguous-key", f"{several(prefix, found, plural)}.")
    return found[0]
