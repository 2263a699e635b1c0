"""Back ends of PyTorch for tests: one that takes every plan, and every graph with plans, whatever their times are, and
one that gets none."""

from typing import Any

import pytest
from fuseplan_client.torch import whole as whole_module
from fuseplan_client.torch.slot import Slot


def take_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the test's end. Plans are compared, and timed, as ever."""
    monkeypatch.setattr(Slot, "_decide", Slot._accept)
    monkeypatch.setattr(whole_module, "_is_faster", lambda planned_us, own_us: True)
    monkeypatch.setattr(whole_module, "CLOSE", 0.0)


class NoPlans:
    """An asker whom nobody answers."""

    def ask(self, question: Any) -> None: ...
    def refuse(self, refusal: Any) -> None: ...
    def wait(self, seconds: float) -> bool:
        return True
