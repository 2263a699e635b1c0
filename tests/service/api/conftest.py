"""One application per test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.service_app import Running, running


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as started:
        yield started
