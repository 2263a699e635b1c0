"""Stores past the caches of a CPU (`store=stream`), for results that no cache can hold.

Others are read soon, and lie where something lay before: an allocator hands out what it got back last. Lines that some
cache has, a store past the caches has to throw out first, and their reader has to fetch them from memory. Within
PyTorch, on two cores with 480 MiB of last-level cache, kernels that stored past the caches took 1.4 times as long as
others for 0.4 MB behind a convolution, 1.5 times for 2 and 8 MB (layer norm and softmax), 1.3 times for 16 and 64 MB
(layer norm and GELU).
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from codegen.schedule import Schedule
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device

S = TypeVar("S", bound=Schedule)


def pays(segment: Graph, device: Device) -> bool:
    """Whether results of a segment may be stored past the caches."""
    return segment.written_bytes > device.cache_bytes


def stores(segment: Graph, device: Device, ways: Sequence[str] = ("stream", "plain")) -> tuple[str, ...]:
    """Those of `ways` to store results that a segment may take."""
    return tuple(way for way in ways if way != "stream" or pays(segment, device))


def by_stores(schedules: Iterable[S], segment: Graph, device: Device) -> list[S]:
    """Schedules with a field `store`, each once, of which those that would store past the caches do so where it may
    pay."""
    if pays(segment, device):
        return list(schedules)
    return list(dict.fromkeys(s.replaced(store="plain") for s in schedules))
