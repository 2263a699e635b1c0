"""The installed CuPy takes streams of others by the client's own way, with no word of deprecation."""

import warnings

import pytest

pytest.importorskip("cupy")

from fuseplan_client.cuda import launches


def test_streams_by_address() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert launches.of_address(0).ptr == 0
        assert launches.of_address(4242).ptr == 4242
