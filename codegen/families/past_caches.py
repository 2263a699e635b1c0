"""Stores past the caches of a CPU (`store=stream`), for results that no cache can hold until they are read.

Others are read soon, and lie where something lay before: an allocator hands out what it got back last. Lines that some
cache has, a store past the caches has to throw out first, and their reader has to fetch them from memory. Within
PyTorch, on two cores with 480 MiB of last-level cache that other machines share, kernels that stored past the caches
took 1.4 times as long as others for 0.4 MB behind a convolution and 1.5 times for 2 MB (layer norm and softmax); layer
norm and GELU of 8 MB together with a sum of them 1.4 times, of 16 MB 1.06 times, of 32 MB 0.96 times.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from codegen.schedule import Schedule
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device

S = TypeVar("S", bound=Schedule)

MOST_HELD = 16 << 20  # bytes of results that caches hold, however large they are: others use them, too


def pays(segment: Graph, device: Device) -> bool:
    """Whether results of a segment may be stored past the caches: they are more than half of the last one holds."""
    return segment.written_bytes > min(device.cache_bytes // 2, MOST_HELD)


def stores(segment: Graph, device: Device, ways: Sequence[str] = ("stream", "plain")) -> tuple[str, ...]:
    """The members of `ways` by which results of a segment may be stored."""
    return tuple(way for way in ways if way != "stream" or pays(segment, device))


def by_stores(schedules: Iterable[S], segment: Graph, device: Device) -> list[S]:
    """Schedules with a field `store`, each once, of which those that would store past the caches do so where it may
    pay."""
    if pays(segment, device):
        return list(schedules)
    return list(dict.fromkeys(s.replaced(store="plain") for s in schedules))
