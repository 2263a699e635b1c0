"""Things that went wrong and were worked around, for a person to look at."""

from collections import deque

MOST = 50


class Problems:
    """The last problems, each text once. Usable from any thread, and behind a fork."""

    def __init__(self) -> None:
        self._texts: deque[str] = deque(maxlen=MOST)

    def note(self, text: str) -> None:
        """Adds a problem, unless it is among the last ones already."""
        if text not in tuple(self._texts):
            self._texts.append(text)

    def told(self) -> tuple[str, ...]:
        """The problems, the newest last."""
        return tuple(self._texts)
