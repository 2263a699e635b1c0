"""The plans and graphs that a process looked at lately and found whole, so that hits do not look again each time."""

from collections.abc import Callable, Iterable

MOST = 20_000  # plans and graphs that a process remembers having looked at
SECONDS = 60.0  # for so long


class LatelyVerified:
    """Keys of plans and graphs that verified within SECONDS, each with the parts that it is made of."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._found = dict[str, tuple[float, frozenset[str]]]()  # until when, and the parts

    def __contains__(self, key: str) -> bool:
        until, _ = self._found.get(key, (0.0, None))
        return self._clock() < until

    def add(self, key: str, parts: Iterable[str] = ()) -> None:
        """Notes that what has this key, and its parts, verified now."""
        if len(self._found) >= MOST:
            self._found.clear()
        self._found[key] = self._clock() + SECONDS, frozenset(parts)

    def forget(self, key: str) -> None:
        """Has the key looked at again by whoever needs it next."""
        self._found.pop(key, None)

    def with_part(self, part: str) -> set[str]:
        """Keys of what has this part."""
        return {key for key, (_, parts) in list(self._found.items()) if part in parts}
