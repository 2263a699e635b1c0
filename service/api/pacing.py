"""How often an open operation is answered: a client that asks without a pause would take the CPU from the search that
it asks about, the more the cheaper its answers are."""

import asyncio
import time
from collections import OrderedDict

ANSWER_SECONDS = 0.1
MOST = 1000  # operations remembered


class Pacing:
    """Lets a question about an operation wait until ANSWER_SECONDS after the last answer that found it open. Questions
    that come meanwhile are answered together."""

    def __init__(self) -> None:
        self._answered: OrderedDict[str, float] = OrderedDict()

    async def turn(self, id: str) -> None:
        """Until the operation may be looked at."""
        wait = self._answered.get(id, 0.0) + ANSWER_SECONDS - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)

    def note(self, id: str, is_open: bool) -> None:
        """The operation is answered now."""
        self._answered.pop(id, None)
        if is_open:
            self._answered[id] = time.monotonic()
            if len(self._answered) > MOST:
                self._answered.popitem(last=False)
