"""The collector of cycles: rarely while a search runs, as before afterwards, however many searches run and end; and a
search leaves it nothing to do."""

import gc
import threading
from contextlib import suppress

from codegen.hardware.gpus import specified
from fusion_ir import building as build
from fusion_ir.core.node import Node
from scheduler.budget import Budget
from scheduler.gc_pause import OBJECTS, collecting_rarely
from scheduler.interfaces import Forgetful
from scheduler.segments.atoms import Atoms
from scheduler.segments.enumeration import Candidate
from scheduler.tune import tune
from scheduler.tuning.trials import Ledger
from tests.support.attention import tensor
from tests.support.products import dense_graph


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


def _rotated_product(x: Node, weight: Node, table: Node) -> Node:
    """x weight, its columns by heads, and the halves of each head's rows turned."""
    heads = build.permute(build.reshape(build.matmul(x, weight), [64, 4, 32]), [1, 0, 2])
    low, high = (build.slice_(heads, [0, 0, 16 * i], [4, 64, 16 * i + 16]) for i in range(2))
    return build.mul(build.cat([build.neg(high), low], 2), table)


def test_what_a_search_held_is_freed_as_it_ends() -> None:
    """Nothing that was raised on the way is kept by what it holds: that would hold the frames of whoever called."""
    graph = dense_graph([tensor(64, 128), tensor(128, 128), tensor(64, 32)], _rotated_product)
    gc.collect()
    gc.disable()
    try:
        for device in (specified("h200", ""), specified("a100", "")):
            assert tune(graph, device, Budget(seconds=0.0), Forgetful(), None).steps
        assert not [o for o in gc.get_objects() if type(o) in (Atoms, Candidate, Ledger)]
    finally:
        gc.enable()
