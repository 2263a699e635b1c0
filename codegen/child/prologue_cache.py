"""What prologues of plans left: kept from run to run, for as long as the constants that it was computed of are the
same."""

from collections import OrderedDict
from typing import Any

MOST_PLANS = 4


class Kept:
    """Memory of the plans run last, by key, with the versions of the constants that they read. It goes with the
    process: another one runs the prologues again."""

    def __init__(self, most: int = MOST_PLANS) -> None:
        self._most = most
        self._plans: OrderedDict[str, tuple[dict[str, str], Any]] = OrderedDict()

    def find(self, plan: str, versions: dict[str, str]) -> Any:
        """What the plan's prologue left of just these versions, None where nothing is."""
        there = self._plans.get(plan)
        if there is None or there[0] != versions:
            return None
        self._plans.move_to_end(plan)
        return there[1]

    def keep(self, plan: str, versions: dict[str, str], memory: Any) -> None:
        """Notes what a prologue left, once it is through; of other versions, nothing is left then."""
        self._plans.pop(plan, None)
        while len(self._plans) >= self._most:
            self._plans.popitem(last=False)
        self._plans[plan] = versions, memory
