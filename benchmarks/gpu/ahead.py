"""Which entry comes next: the first that is prepared, while others are being prepared."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarks.gpu.prepare import Task
from benchmarks.gpu.workers import Crew, Done

POLL_SECONDS = 1.0
PARTS = ("plans", "peers")

Outcomes = Mapping[str, Done]


def prepared(
    names: Sequence[str], crew: Crew, ahead: int, goes_on: Callable[[], bool]
) -> Iterator[tuple[str, Outcomes]]:
    """Entries with what became of each of their parts, about in the order of `names`: one that takes long to prepare
    keeps nobody waiting. At most `ahead` are under way, so that what they need is not made long before. Ends when
    `goes_on` says no, which it is asked before each and while none is there."""
    waiting = deque(names)
    under_way: dict[str, dict[str, Done]] = {}
    while goes_on():
        while waiting and len(under_way) < ahead:
            name = waiting.popleft()
            under_way[name] = {}
            crew.submit(Task(name, "plans"))
            crew.submit(Task(name, "peers"))
        if not under_way:
            return
        ready = _first(under_way)
        for done in crew.outcomes(0.0 if ready else POLL_SECONDS):
            under_way[done.task.entry][done.task.what] = done
        if ready:
            yield ready, under_way.pop(ready)


def _first(under_way: Mapping[str, Outcomes]) -> str | None:
    return next((name for name, parts in under_way.items() if len(parts) == len(PARTS)), None)
