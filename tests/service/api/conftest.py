"""One application per test."""

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.service_app import Running, running


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as started:
        yield started


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """Everything that is logged in this process during the test."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger().addHandler(handler)
    yield stream
    logging.getLogger().removeHandler(handler)
