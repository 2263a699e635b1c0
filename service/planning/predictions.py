"""Predicted times of the plans in a list that were not timed."""

import json

from tuning_db.plan_lists import PlanSummary
from tuning_db.store import Store

PREDICTIONS = 4096  # predicted times in memory
_known: dict[str, float | None] = {}  # by the key of a plan, whose body never changes


def predicted_us(store: Store, row: PlanSummary) -> float | None:
    """The predicted time (us) of a plan that was not timed, which only its body has; None where the plan was timed."""
    if row.time_us is not None:
        return None
    if row.plan_key in _known:
        return _known[row.plan_key]
    body = store.plans.plan(row.plan_key)
    if body is None:
        return None
    if len(_known) >= PREDICTIONS:
        _known.clear()
    found = _known[row.plan_key] = json.loads(body).get("predicted_us")
    return found
