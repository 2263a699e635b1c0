"""Results of plans' prologues, kept from run to run for as long as the constants that they were computed from do not
change."""

from collections import OrderedDict
from typing import Any

MOST_PLANS = 4


class PrologueCache:
    """Memory that the prologues of the plans run last left, by plan key, with the versions of the constants that they
    read. It ends with the process: the next one runs the prologues again."""

    def __init__(self, most: int = MOST_PLANS) -> None:
        self._most = most
        self._plans: OrderedDict[str, tuple[dict[str, str], Any]] = OrderedDict()

    def find(self, plan: str, versions: dict[str, str]) -> Any:
        """The memory that the plan's prologue left for exactly these versions, None where there is none."""
        there = self._plans.get(plan)
        if there is None or there[0] != versions:
            return None
        self._plans.move_to_end(plan)
        return there[1]

    def keep(self, plan: str, versions: dict[str, str], memory: Any) -> None:
        """Notes the memory that a finished prologue left, in place of the plan's memory for other versions."""
        self._plans.pop(plan, None)
        while len(self._plans) >= self._most:
            self._plans.popitem(last=False)
        self._plans[plan] = versions, memory
