"""Plans in the database, by key or by the beginning of one, and GRAPH|PLAN_KEY arguments, which may be either."""

import os
import re

from fusion_ir.errors import excerpt
from fusion_ir.records import Plan
from service.cli.errors import CommandError, bad_input
from service.cli.near_files import near_files
from service.cli.plan_key import KEY, PREFIX
from service.wording.key_prefixes import CANDIDATES, several
from tuning_db.store import Store

_SHOWN_CHARS = 200  # of an argument, in a message


def find_key(store: Store, argument: str) -> str:
    """The whole key. Raises CommandError where no plan, or more than one, begins with `argument`."""
    if KEY.match(argument):
        return argument
    if not PREFIX.match(argument):
        raise bad_input(f"{excerpt(argument)}: expected a plan key, or at least 4 of its first digits")
    found = store.plans.keys(argument, CANDIDATES + 1)
    if len(found) > 1:
        raise bad_input(several(argument, found, "plans"))
    if not found:
        raise bad_input(f"{argument}: no plan in {store.place} begins with it")
    return found[0]


def load_plan(store: Store, argument: str) -> tuple[str, Plan]:
    """Key and plan. Raises CommandError."""
    key = find_key(store, argument)
    body = store.plans.plan(key)
    if body is None:
        raise bad_input(f"{argument}: there is no such plan in {store.place}")
    return key, Plan.model_validate_json(body)


def load_subject(store: Store, subject: str) -> tuple[str, Plan] | None:
    """Key and plan of a GRAPH|PLAN_KEY argument; None where it is a graph: a file of that name, or standard input.

    Raises CommandError for what is neither a file nor the key of a plan, or its beginning.
    """
    if subject == "-" or os.path.exists(subject):
        return None
    if not PREFIX.match(subject):
        short = len(subject) < 4 and re.fullmatch("[0-9a-f]+", subject) is not None
        why = "give at least 4 of its digits" if short else "keys have hex digits"
        raise _neither(subject, "no plan's key begins with it", why)
    found = store.plans.keys(subject, CANDIDATES + 1)
    if not found:
        raise _neither(subject, f"no plan's key in {store.place} begins with it", "")
    return load_plan(store, found[0] if len(found) == 1 else subject)


def _neither(subject: str, no_key: str, why: str) -> CommandError:
    shown = subject if len(subject) <= _SHOWN_CHARS and subject.isprintable() else excerpt(subject, _SHOWN_CHARS)
    return bad_input(f"{shown}: no file of that name, and {no_key}{': ' * bool(why)}{why}{near_files(subject)}")
