"""How long files of kernels may take a compiler: by their peers, by the budget, and never next to nothing."""

import pytest

from codegen.toolchain.compile_patience import HEADERS, LEAST_PEERS, LEAST_S, TIMES, Patience


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_without_peers_anything_may_take_as_long_as_it_is_allowed() -> None:
    patience = Patience(60.0)
    for _ in range(LEAST_PEERS - 1):
        patience.note(1000, 0.1)
    assert patience.seconds(1000) == 60.0


def test_peers_limit_a_file_by_its_length() -> None:
    patience = Patience(60.0)
    for characters in (0, HEADERS, 3 * HEADERS, 7 * HEADERS):
        patience.note(characters, 1.0 * (1 + characters / HEADERS))
    assert patience.seconds(0) == pytest.approx(TIMES)
    assert patience.seconds(HEADERS) == pytest.approx(2 * TIMES)
    assert patience.seconds(100 * HEADERS) == 60.0
    patience.note(HEADERS, 1000.0)
    assert patience.seconds(HEADERS) == pytest.approx(2 * TIMES), "one that was slow is no peer for the others"


def test_what_is_left_of_a_search_limits_it_and_a_few_seconds_are_always_left() -> None:
    clock = Clock()
    patience = Patience(60.0, clock)
    patience.until(20.0)
    assert patience.seconds(1000) == 20.0
    clock.now = 8.0
    assert patience.seconds(1000) == 12.0
    clock.now = 100.0
    assert patience.seconds(1000) == LEAST_S
    patience.until(None)
    assert patience.seconds(1000) == 60.0
    assert Patience(2.0).seconds(10) == 2.0, "never more than is allowed"


def test_a_file_of_several_kernels_has_longer_than_one_of_them() -> None:
    patience = Patience(60.0, Clock())
    patience.until(0.0)
    assert patience.seconds(1000) == LEAST_S
    assert patience.seconds(9000, 9) == pytest.approx(3 * LEAST_S)
