"""The collector of cycles: rarely while a search runs, as before afterwards, however many searches run and end."""

import gc
import threading
from contextlib import suppress

from scheduler.collector import OBJECTS, collecting_rarely


@collecting_rarely()
def _threshold_inside(fails: bool = False) -> int:
    if fails:
        raise KeyboardInterrupt
    return gc.get_threshold()[0]


def test_it_is_as_before_when_a_search_ends() -> None:
    before = gc.get_threshold()
    assert _threshold_inside() == OBJECTS
    assert gc.get_threshold() == before
    with suppress(KeyboardInterrupt):
        _threshold_inside(fails=True)
    assert gc.get_threshold() == before


def test_searches_inside_each_other() -> None:
    before = gc.get_threshold()
    with collecting_rarely():
        assert _threshold_inside() == OBJECTS
        assert gc.get_threshold() == (OBJECTS, *before[1:])
    assert gc.get_threshold() == before


def test_searches_of_several_threads_that_end_in_the_order_they_began() -> None:
    before, first_is_in, second_is_in = gc.get_threshold(), threading.Event(), threading.Event()

    def first() -> None:
        with collecting_rarely():
            first_is_in.set()
            assert second_is_in.wait(60)

    thread = threading.Thread(target=first)
    thread.start()
    assert first_is_in.wait(60)
    with collecting_rarely():
        second_is_in.set()
        thread.join()
        assert gc.get_threshold()[0] == OBJECTS
    assert gc.get_threshold() == before
