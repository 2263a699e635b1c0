"""Memory of the tensors of one graph on the CPU: guarded for checks, in rotating sets for timing."""

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen.child.case import Array, Case, strided
from codegen.launch.cpu import HUGE_PAGE, Bytes, GuardedTensor, PageMemory
from fusion_ir.arithmetic.threads import assign, equal
from fusion_ir.core.graph import Graph
from fusion_ir.dtype import DTYPES, DType

OUTPUT_ALIGNMENT = 64
MOST_SETS = 8192
# Times the last-level cache, that inputs read between two runs on one set have in all. Twice is not enough: outputs may
# go past the caches, and 33 MB of inputs alone came 10 % faster than from memory beside a cache of 32 MiB; a machine of
# several such caches may show one of them.
COLD = 4
MOST_COLD = 8  # times the cache, that all sets may take, where one is not more
# All sets take no more, whatever cache a machine names: it may be one that a hundred cores share, and a virtual
# machine takes 1 to 4 s to touch a gigabyte for the first time, and 0.4 s to fill it for each segment (480 MiB of L3).
# As much as copies between two tensors of `MOST_DRAM_BYTES` (devices/ceilings.py), by which bounds are known.
MOST_BYTES = 384 << 20
# Of the last-level cache, what outputs take that runs write in turn. An allocator hands out again what it got back
# last, so that a caller's results lie where something lay before, in lines that a cache still has.
OUTPUT_SHARE = 1 / 32
POISON = (0xFF, 0x5A)  # 0xFF..: a NaN in every float type, -1, no bool; the other, for results that happen to be that


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """One tensor: element type, extents, strides in elements, elements spanned, alignment in bytes."""

    dtype: DType
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    span: int
    alignment: int

    @property
    def bytes(self) -> int:
        return self.span * self.dtype.bytes

    def view(self, raw: Bytes) -> Array:
        """The tensor in `raw`, which has `bytes` bytes; where `raw` is rows of that many bytes, a tensor per row."""
        if not self.span:
            return np.empty((*raw.shape[:-1], *self.sizes), self.dtype.numpy)
        return strided(raw, self.dtype.numpy, self.sizes, self.strides)

    @property
    def has_gaps(self) -> bool:
        """Some bytes of the span belong to no element."""
        return int(np.prod(self.sizes, dtype=np.int64)) != self.span


def layouts(graph: Graph) -> tuple[list[TensorLayout], list[TensorLayout]]:
    """Layouts of the inputs, and layouts of the outputs."""
    inputs = [
        TensorLayout(s.dtype, s.sizes, s.strides, s.span, min(4096, max(s.alignment_bytes, s.dtype.bytes)))
        for s in graph.inputs
    ]
    outputs = [TensorLayout(o.node.dtype, o.node.sizes, o.strides, o.span, OUTPUT_ALIGNMENT) for o in graph.outputs]
    return inputs, outputs


def tensor_layout(tensor: Mapping[str, Any], alignment: int) -> TensorLayout:
    """Layout of a tensor that a message describes by shape, strides and dtype. alignment: in bytes."""
    sizes, strides = tuple(tensor["shape"]), tuple(tensor["strides"])
    span = 0 if 0 in sizes else 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    return TensorLayout(DTYPES[tensor["dtype"]], sizes, strides, span, alignment)


class CheckMemory:
    """Inputs (read-only) and outputs of one input set between guard pages: each tensor lies against the page behind it
    (`at_end`) or against the page before it.

    shared: guarded memory by (input set, tensor, placement), which all instances of one case have in common: a tensor
    of whole pages lies against both guard pages at once, and outputs, whose input set is -1, are overwritten before
    each run.
    """

    def __init__(
        self, case: Case, input_set: int, at_end: bool, shared: dict[tuple[int, int, bool], GuardedTensor]
    ) -> None:
        self.inputs, self.outputs = layouts(case.graph)
        self.poison = POISON[0 if at_end else 1]
        self.guards: list[GuardedTensor] = []
        for i, layout in enumerate((*self.inputs, *self.outputs)):
            moves = at_end and GuardedTensor.slack(layout.bytes, layout.alignment) > 0
            key = (input_set if i < len(self.inputs) else -1, i, moves)
            if key not in shared:
                shared[key] = GuardedTensor(layout.bytes, layout.alignment, at_end)
                if i < len(self.inputs):
                    if layout.span:
                        assign(layout.view(shared[key].bytes), case.input_sets[input_set].inputs[i])
                    shared[key].freeze()
            self.guards.append(shared[key])

    @property
    def addresses(self) -> list[int]:
        return [guard.address for guard in self.guards]

    def poison_outputs(self) -> None:
        """Overwrites all outputs, and mends what an earlier kernel did around them."""
        for guard in self.guards[len(self.inputs) :]:
            guard.reset(self.poison)

    def result(self, i: int) -> Array:
        """Output i as it lies there."""
        return self.outputs[i].view(self.guards[len(self.inputs) + i].bytes)

    def input(self, i: int) -> Array:
        """Input i as it lies there."""
        return self.inputs[i].view(self.guards[i].bytes)

    def trespass(self) -> str:
        """A message that says where a run wrote outside of the outputs' elements, "" if nowhere. Destroys the
        outputs."""
        for i, (layout, guard) in enumerate(zip(self.outputs, self.guards[len(self.inputs) :], strict=True)):
            if not guard.intact:
                return f"wrote before or behind out{i}"
            if layout.has_gaps and layout.span:
                layout.view(guard.bytes).view(np.dtype((np.void, layout.dtype.bytes)))[...] = (
                    bytes([self.poison]) * layout.dtype.bytes
                )
                if not (guard.bytes == self.poison).all():
                    return f"wrote into the gaps between the elements of out{i}"
        return ""


def rotating_sets(input_bytes: int, bytes_: int, cache_bytes: int) -> int:
    """Number of sets of tensors (`bytes_` bytes each) that runs use in turn, so that each run finds its inputs in
    memory and not in cache. The inputs of all sets exceed `COLD` caches, as far as the sets fit into `MOST_COLD` caches
    and `MOST_BYTES`; all tensors together exceed two caches in any case, a cache counting `MOST_BYTES` / 2 at most."""
    cache_bytes = min(cache_bytes, MOST_BYTES // 2)
    least = 1 if bytes_ >= 2 * cache_bytes else -(-2 * cache_bytes // bytes_) + 1
    cold = 1 if input_bytes >= COLD * cache_bytes else -(-COLD * cache_bytes // max(input_bytes, 1)) + 1
    return min(MOST_SETS, max(least, min(cold, min(MOST_COLD * cache_bytes, MOST_BYTES) // bytes_)))


def output_sets(sets: int, output_bytes: int, cache_bytes: int) -> int:
    """Number of sets of outputs (`output_bytes` bytes each) that runs on `sets` sets of inputs write in turn."""
    fit = int(OUTPUT_SHARE * min(cache_bytes, MOST_BYTES // 2)) // max(output_bytes, 1)
    return max(1, min(sets, fit))


class Arena:
    """Memory that cases use one after the other. The first touch of a page may take a system longer than all work on
    it: 0.01 to 0.9 s for 256 MiB on a virtual machine."""

    def __init__(self) -> None:
        self._memory: PageMemory | None = None
        self._touched = 0

    def take(self, size: int, cache_bytes: int) -> PageMemory:
        """Memory of at least `size` bytes with any content, made large enough for the sets of tensors that a cache of
        `cache_bytes` asks for. The caller before may not use it any more."""
        if self._memory is None or self._memory.bytes.size < size:
            self._memory, self._touched = None, 0
            self._memory = PageMemory(max(size, min(MOST_COLD * cache_bytes, MOST_BYTES)), touched=False)
        assign(self._memory.bytes[self._touched : size : mmap.PAGESIZE], 0)
        self._touched = max(self._touched, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
        return self._memory


class TimingMemory:
    """Several sets of inputs, so that each run finds them in memory and not in cache, and fewer sets of outputs, which
    stay in the cache: run r reads set r % sets and writes set r % output_sets, of which `sets` is a multiple. Where
    outputs may take an input's memory, as many as of inputs. `addresses`: uint64[sets, inputs + outputs]; inputs:
    number of these. An arena holds one instance at a time."""

    def __init__(self, case: Case, cache_bytes: int, arena: Arena) -> None:
        tensors = [x for part in layouts(case.graph) for x in part]
        offsets: list[int] = []
        size = 0
        for tensor in tensors:
            step = HUGE_PAGE if tensor.bytes >= 2 * HUGE_PAGE else 4096 if tensor.bytes >= 4096 else 64
            size = -(-size // step) * step
            offsets.append(size)
            size += tensor.bytes
        stride = max(64, -(-size // 64) * 64)
        if size >= 4096:
            stride = -(-stride // 4096) * 4096
        if size >= 2 * HUGE_PAGE:
            stride = -(-stride // HUGE_PAGE) * HUGE_PAGE
        used, count = max(1, sum(t.bytes for t in tensors)), len(case.graph.inputs)
        self.sets = self.output_sets = rotating_sets(sum(t.bytes for t in tensors[:count]), used, cache_bytes)
        if all(o.donates is None for o in case.graph.outputs):
            self.output_sets = output_sets(self.sets, sum(t.bytes for t in tensors[count:]), cache_bytes)
            self.sets = -(-self.sets // self.output_sets) * self.output_sets
        self.inputs = count
        self._inputs = case.input_sets[0].inputs
        self._memory = arena.take(stride * self.sets, cache_bytes)
        self._raw = raw = self._memory.bytes[: stride * self.sets].reshape(self.sets, stride)
        self._places = [slice(o, o + t.bytes) for t, o in zip(tensors, offsets, strict=True)]
        self._views = [t.view(raw[:, place]) for t, place in zip(tensors, self._places, strict=True)]  # with all sets
        assign(raw[0], 0)  # an earlier case's results may be right here, too
        for view, array in zip(self._views, self._inputs, strict=False):
            assign(view[0, ...], array)
        assign(raw[1:], raw[0])
        starts = self._memory.address + np.arange(self.sets, dtype=np.uint64) * np.uint64(stride)
        self.addresses: np.ndarray[Any, np.dtype[np.uint64]] = starts[:, None] + np.array(offsets, np.uint64)[None, :]
        self.addresses[:, count:] = self.addresses[np.arange(self.sets) % self.output_sets, count:]

    @property
    def bytes(self) -> int:
        """Bytes of all sets."""
        return self._raw.size

    def tensors(self, which: int) -> list[Array]:
        """One set of outputs, behind the first set of inputs of which runs write there, as they lie there."""
        return [view[which, ...] for view in self._views]

    def has_inputs(self, which: int) -> bool:
        """Whether one set of inputs is unchanged."""
        pairs = zip(self._views, self._inputs, strict=False)
        return all(equal(_bits(view[which, ...]), _bits(array)) for view, array in pairs)

    def is_intact(self, which: int) -> bool:
        """Whether all sets of inputs are unchanged of which runs write this set of outputs."""
        return all(map(self.has_inputs, range(which, self.sets, self.output_sets)))

    def restore(self, which: int, poison: int) -> None:
        """Writes one set of inputs again if they were changed, and fills the outputs that runs on it write with the
        byte `poison`."""
        if not self.has_inputs(which):
            for view, array in zip(self._views, self._inputs, strict=False):
                assign(view[which, ...], array)
        for place in self._places[len(self._inputs) :]:
            assign(self._raw[which % self.output_sets, place], poison)

    def restore_all(self, poison: int) -> None:
        """`restore` for every set."""
        for which in range(self.sets):
            self.restore(which, poison)


class KeptTensors:
    """The temporaries that a plan's prologue writes, in several copies while the plan is timed, so that each run finds
    them in memory and not in cache, like its inputs. `addresses`: the table of tensors, in which the temporaries `kept`
    (those from column `first` on are temporaries) have their places here."""

    def __init__(
        self,
        table: np.ndarray[Any, np.dtype[np.uint64]],
        first: int,
        buffers: Sequence[int],
        kept: Sequence[int],
        cache_bytes: int,
    ) -> None:
        sets, offsets, stride = len(table), dict[int, int](), 0
        for k in kept:
            offsets[k] = stride
            step = 4096 if buffers[k] >= 4096 else 64
            stride = -(-(stride + buffers[k]) // step) * step
        copies = min(sets, min(2 * cache_bytes, MOST_BYTES) // max(stride, 64) + 2)
        self._memory = PageMemory(stride * copies)
        self._raw = self._memory.bytes.reshape(copies, stride)
        self.addresses = table.copy()
        starts = self._memory.address + np.arange(sets, dtype=np.uint64) % np.uint64(copies) * np.uint64(stride)
        for k, offset in offsets.items():
            self.addresses[:, first + k] = starts + np.uint64(offset)

    def repeat(self) -> None:
        """Copies the temporaries that the prologue wrote for the first set to those of all other sets."""
        assign(self._raw[1:], self._raw[0])


def _bits(array: Array) -> Array:
    return array.view(f"u{array.dtype.itemsize}")


def temporaries(sizes: Sequence[int], poison: int, held: list[PageMemory] | None = None) -> list[PageMemory]:
    """Buffers of a plan, each of at least the bytes in `sizes`, filled with `poison`. held: a list of buffers to use
    again; those that are missing or too small are made in it."""
    made = held if held is not None else []
    for i, size in enumerate(sizes):
        if i == len(made):
            made.append(PageMemory(size))
        elif made[i].bytes.size < size:
            made[i] = PageMemory(size)
        assign(made[i].bytes[:size], poison)
    return made[: len(sizes)]
