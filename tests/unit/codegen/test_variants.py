"""Variants of a family's first schedule: interleaved chains, where a segment has any. And what else it may be."""

import contextlib
import random
from collections.abc import Callable

import pytest

from codegen.families import FAMILIES
from codegen.families.loop_nest import has_chains
from codegen.hardware.gpus import specified
from codegen.kernel import EmitError, offers
from codegen.schedule import schedule_text, schedule_values
from fusion_ir import building as build
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f16, f32
from tests.support.attention import tensor
from tests.support.devices import CPU_DEVICE
from tests.support.products import dense_graph
from tests.unit.codegen.test_memory_order import Inputs, graph_of

LOOPS = ("pointwise", "reduction", "normalization")
CHAINS: dict[str, Callable[[Inputs], Node]] = {
    "a function": lambda new: build.exp(new(40, 64)),
    "before a sum": lambda new: build.sum_(build.erf(new(40, 64)), [1]),
    "of rows that repeat": lambda new: build.softmax(new(40, 64)),
    "of every other element": lambda new: build.sigmoid(build.slice_(new(40, 128), (0, 0), (40, 64))),
    "random numbers": lambda new: build.dropout(new(40, 64), 0.1, 1, 2)[0],
}
NONE: dict[str, Callable[[Inputs], Node]] = {
    "arithmetic": lambda new: build.div(new(40, 64), new(40, 64)),
    "of one row": lambda new: build.mul(new(40, 64), build.exp(new(64))),
    "of results": lambda new: build.exp(build.sum_(new(40, 64), [1])),
}


@pytest.mark.parametrize("name", [*CHAINS, *NONE])
def test_what_is_interleaved(name: str) -> None:
    graph = graph_of((CHAINS | NONE)[name])
    assert has_chains(graph) == (name in CHAINS)
    accepting = [f for f in FAMILIES.values() if f.name in LOOPS and not f.accepts(graph, CPU_DEVICE)]
    assert accepting
    for family in accepting:
        first, second, *others = family.space(graph, CPU_DEVICE)
        assert ("interleave=1" in first) == ("interleave=1" in second) == (name in CHAINS)
        assert not any("interleave=1" in s for s in others)
        assert family.emit(graph, first, CPU_DEVICE).source.count("INTERLEAVED") == (name in CHAINS)


SEGMENTS: dict[str, Callable[[Inputs], Node]] = {
    **CHAINS,
    **NONE,
    "small products": lambda new: build.matmul(new(40, 4), new(4, 64)),
    "heads": lambda new: build.permute(new(40, 6, 32), (1, 0, 2)),
    "a transpose": lambda new: build.add(new(40, 64), build.transpose(new(64, 40))),
    "a running sum": lambda new: build.cumsum(new(40, 64), 1),
}


@pytest.mark.parametrize("name", SEGMENTS)
def test_what_a_schedule_may_be(name: str) -> None:
    """The first schedules are among it, and most of the others can be lowered."""
    graph = graph_of(SEGMENTS[name])
    found = 0
    for family in FAMILIES.values():
        if family.accepts(graph, CPU_DEVICE) or not (choices := family.choices(graph, CPU_DEVICE)):
            continue
        found += 1
        for schedule in family.space(graph, CPU_DEVICE):
            given = schedule_values(schedule)
            assert list(given) == list(choices)
            assert all(value in map(str, choices[field]) for field, value in given.items()), schedule
        draw = random.Random(name)
        emitted = 0
        for _ in range(12):
            point = schedule_text(family.name, {field: draw.choice(values) for field, values in choices.items()})
            with contextlib.suppress(EmitError):
                emitted += bool(family.emit(graph, point, CPU_DEVICE))
        assert emitted >= 6
    assert found


SUMS: dict[str, Callable[[Inputs], Node]] = {
    "of short rows": lambda new: build.sum_(new(4096, 8), [1]),
    "of rows and lanes": lambda new: build.sum_(new(1, 4096, 8), [1, 2]),
    "of many short rows": lambda new: build.sum_(new(3, 4096, 8), [1, 2]),
    "down columns": lambda new: build.sum_(new(4096, 64), [0]),
    "of one long row": lambda new: build.softmax(new(2, 1 << 17)),
}
PRODUCTS = {
    f"{dtype.name} {m} {n} {k}": ((m, k, dtype), (k, n, dtype))
    for dtype in (bf16, f16, f32)
    for m, n, k in ((768, 768, 768), (64, 1536, 768), (4096, 4096, 4096), (304, 40, 304), (1, 512, 2048))
}


@pytest.mark.parametrize("target", ["h200", "a100", "b200"])
@pytest.mark.parametrize("name", [*SEGMENTS, *SUMS, *PRODUCTS])
def test_first_schedules_for_a_gpu_are_on_offer(name: str, target: str) -> None:
    """Whatever reads a schedule back, from the database or from a file, asks whether it is one of the family's. Seven
    stages of `wgmma` were none, nor two threads along a row: what was measured of them was not found again, and such
    plans could not be imported."""
    device = specified(target, "")
    if name in SEGMENTS | SUMS:
        graph = graph_of((SEGMENTS | SUMS)[name])
    else:
        graph = dense_graph([tensor(m, k, dtype=dtype) for m, k, dtype in PRODUCTS[name]], build.matmul)
    for family in FAMILIES.values():
        if family.accepts(graph, device) is None:
            choices = family.choices(graph, device)
            for schedule in family.space(graph, device):
                assert offers(family, graph, schedule, device)
                given = schedule_values(schedule) if choices else {}
                assert all(value in map(str, choices[field]) for field, value in given.items()), schedule


def test_rows_that_share_have_room_for_their_sums() -> None:
    graph = graph_of(SEGMENTS["small products"])
    schedule = "pointwise{{lanes={},fetch=0,store=stream,tile=4096,block=0,interleave=0,tasks=1,rows=8}}"
    native = CPU_DEVICE.vector_bytes // 4
    assert FAMILIES["pointwise"].emit(graph, schedule.format(4 * native), CPU_DEVICE)
    with pytest.raises(EmitError, match="more than 32 registers"):
        FAMILIES["pointwise"].emit(graph, schedule.format(8 * native), CPU_DEVICE)
