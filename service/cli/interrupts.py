"""Ctrl-C during a search: the first ends it with the best so far, which is then stored and shown; a second ends all."""

import signal
import threading
from types import FrameType, TracebackType

from scheduler.budget import Event, Progress
from service.process import interruption


class Interrupts:
    """Within the block SIGINT raises KeyboardInterrupt where the search turns that into a plan, or where there is
    nothing to lose yet. Where a plan is being finished, stored or shown, one interrupt is let pass: what it asks for
    happens anyway. A second one is raised wherever it comes.

    The search says where it is: it takes interrupts from its first event to its last ("done").
    """

    def __init__(self) -> None:
        self._heard = 0
        self._has_plan = False  # or is about to
        self._before: signal.Handlers | object = signal.SIG_DFL

    @property
    def came(self) -> bool:
        """Whether there was an interrupt."""
        return self._heard > 0

    def watching(self, progress: Progress) -> Progress:
        """Begins a search: returns `progress` wrapped, so that this object learns of the search's events and raises an
        earlier interrupt there. Raises KeyboardInterrupt where an interrupt came before: the search is not to begin."""
        self._has_plan = False
        if self._heard:
            raise KeyboardInterrupt

        def watched(event: Event) -> None:
            self._has_plan = event.phase == "done"
            if self._heard and not self._has_plan:
                raise KeyboardInterrupt  # heard between two searches
            progress(event)

        return watched

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._before)  # pyright: ignore[reportArgumentType]

    def _interrupt(self, _number: int, frame: FrameType | None) -> None:
        self._heard += 1
        if self._heard > 1:
            interruption.strike(frame)
        elif not self._has_plan:
            self._has_plan = True
            interruption.raise_in(frame)
