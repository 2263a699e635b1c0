"""Plans in the database, by key or by the beginning of one."""

import re

from fusion_ir.errors import excerpt
from fusion_ir.records import Plan
from service.cli.errors import bad_input
from tuning_db import PlanFilter, Store

KEY = re.compile(r"[0-9a-f]{64}\Z")
PREFIX = re.compile(r"[0-9a-f]{4,64}\Z")
_PAGE = 500


def find_key(store: Store, argument: str) -> str:
    """The whole key. Raises CommandError where no plan, or more than one, begins with `argument`."""
    if KEY.match(argument):
        return argument
    if not PREFIX.match(argument):
        raise bad_input(f"{excerpt(argument)}: expected a plan key, or at least 4 of its first digits")
    found: list[str] = []
    token: str | None = None
    while True:
        page = store.plans(PlanFilter(superseded=True), token, _PAGE)
        found += [row.plan_key for row in page.items if row.plan_key.startswith(argument)]
        token = page.next_page_token
        if token is None:
            break
    if len(found) > 1:
        raise bad_input(f"{argument}: {len(found)} plans begin with it; give more digits")
    if not found:
        raise bad_input(f"{argument}: no plan in {store.place} begins with it")
    return found[0]


def load_plan(store: Store, argument: str) -> tuple[str, Plan]:
    """Key and plan. Raises CommandError."""
    key = find_key(store, argument)
    body = store.plan(key)
    if body is None:
        raise bad_input(f"{argument}: there is no such plan in {store.place}")
    return key, Plan.model_validate_json(body)
