"""Missing extras of an installation are reported, a line each, with what to install."""

from typing import Any

import pytest

from service.wording import extras


def lacking(monkeypatch: pytest.MonkeyPatch, *names: str) -> list[str]:
    def find(name: str) -> Any:
        return None if name in names else object()

    monkeypatch.setattr(extras, "find_spec", find)
    return list(extras.missing_extras())


def test_each_missing_extra_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lacking(monkeypatch) == []
    pages, gpus = lacking(monkeypatch, "jinja2", "pygraphviz", "cupy")
    assert pages == "No pages without Jinja2: pip install 'fuseplan[dashboard]'"
    assert "pip install 'fuseplan[cuda13]'" in gpus
    assert "h200" in gpus
    assert lacking(monkeypatch, "pygraphviz") == [
        "No pictures of graphs without pygraphviz: pip install 'fuseplan[dashboard]'"
    ]
