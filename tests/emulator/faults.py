"""Seeded faults: a kernel, a change to it, and whether the emulator or the result shows the change.

A fault names text of the kernel's source, or of a header, and what stands there instead. The unchanged kernel must pass
on every seed; on one of them the changed one must be reported, give a wrong result, or meet bank conflicts or touch
sectors of global memory that the unchanged one does not.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from codegen.child.case import Case, InputSet, judge, make_case, strided
from codegen.families import FAMILIES
from codegen.kernel import Kernel, Launch
from codegen.launch.emulator import Emulation, EmulatorFault, Run, Tensor, run_arrays
from codegen.sandbox.temporary_folders import temporary_folder
from codegen.toolchain.compiler import INCLUDE
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.text.printing import parse_graph
from testing.emulated_kernels import build, emulated_device
from tests.support.ranges import Range

Array = np.ndarray[Any, Any]
SEEDS = range(6)
APART_BYTES = 1 << 20


class Subject(Protocol):
    """A kernel that can be run and judged. name: unique among subjects. arch: what it is compiled for."""

    @property
    def name(self) -> str: ...

    @property
    def arch(self) -> str: ...

    def kernel(self) -> Kernel: ...

    def run(self, emulation: Emulation, seed: int) -> tuple[str, Run]:
        """The fault of the result in words, "" where it is right, and the launch's record. Raises EmulatorFault."""
        ...


@dataclass(frozen=True)
class HandWritten:
    """A kernel written for a test. Results must be equal bit for bit. temporary, flags: words of memory that it may
    use, its last parameters; flags begin with zeros. launches: one after another, with the same flags."""

    name: str
    source: str
    grid: int
    block: int
    shared_bytes: int
    inputs: tuple[Array, ...]
    expected: tuple[Array, ...]
    arch: str = "sm_80"
    temporary: int = 0
    flags: int = 0
    launches: int = 1

    def kernel(self) -> Kernel:
        launch = Launch((self.grid, 1, 1), (self.block, 1, 1), self.shared_bytes)
        return Kernel(f"k_{self.name}", self.source, "cuda", "test", self.name, launch)

    def run(self, emulation: Emulation, seed: int) -> tuple[str, Run]:
        placed = _apart([*self.inputs, *(np.empty_like(a) for a in self.expected)])
        inputs, outputs = placed[: len(self.inputs)], placed[len(self.inputs) :]
        temporaries = [np.full(self.temporary, -77, np.int32)] if self.temporary else []
        flags = [np.zeros(self.flags, np.int32)] if self.flags else []
        for _ in range(self.launches):
            for output in outputs:
                output[...] = -77
            run = run_arrays(emulation, inputs, outputs, temporaries, seed, flags)
        wrong = [i for i, (a, b) in enumerate(zip(outputs, self.expected, strict=True)) if not np.array_equal(a, b)]
        return (f"wrong result in out{wrong[0]}" if wrong else ""), run


@dataclass(frozen=True)
class Generated:
    """A family's kernel for a graph (its text), with a schedule of the family's. ranges: by which random inputs become
    others."""

    name: str
    family: str
    graph: str
    schedule: str
    arch: str = "sm_80"
    ranges: tuple[Range, ...] = ()

    def kernel(self) -> Kernel:
        graph = parse_graph(self.graph).graph
        return FAMILIES[self.family].emit(graph, self.schedule, emulated_device(self.arch))

    def run(self, emulation: Emulation, seed: int) -> tuple[str, Run]:
        case = _case(self.graph, self.ranges)
        input_set = seed % len(case.input_sets)
        inputs = [
            _spread(a, s.strides, s.span)
            for a, s in zip(case.input_sets[input_set].inputs, case.graph.inputs, strict=True)
        ]
        outputs = [np.full(o.span, 0xFF, np.uint8).repeat(o.node.dtype.bytes) for o in case.graph.outputs]
        aligned = _apart([*inputs, *outputs])
        tensors = [
            Tensor(f"in{i}", "input", a.ctypes.data, a.nbytes)
            if i < len(inputs)
            else Tensor(f"out{i - len(inputs)}", "output", a.ctypes.data, a.nbytes, np.zeros(a.nbytes, np.uint8))
            for i, a in enumerate(aligned)
        ]
        run = emulation.run([t.address for t in tensors], tensors, seed)
        results = [
            strided(a, o.node.dtype.numpy, o.node.sizes, o.strides)
            if o.span
            else np.empty(o.node.sizes, o.node.dtype.numpy)
            for a, o in zip(aligned[len(inputs) :], case.graph.outputs, strict=True)
        ]
        return judge(case, input_set, results).problem, run


@dataclass(frozen=True)
class Fault:
    """text, replacement: once in the kernel's source, or `count` times; in the header of codegen/include where one is
    named. report: part of what the emulator is expected to say; "": anything, or a wrong result, or
    accesses that cost more."""

    name: str
    subject: Subject = field(repr=False)
    text: str
    replacement: str
    report: str = ""
    header: str = ""
    count: int = 1

    @property
    def entry(self) -> str:
        """Entry of the changed kernel: the subject's entry and the fault's name."""
        changed = "".join(c if c.isalnum() else "_" for c in self.name)
        return f"{self.subject.kernel().entry}_{changed}"

    def changed(self) -> Kernel:
        """The kernel with the fault; for one in a header, the kernel itself. Raises AssertionError where the text does
        not occur."""
        kernel = self.subject.kernel()
        if self.header:
            return kernel
        assert kernel.source.count(self.text) == self.count, (self.name, kernel.source)
        source = kernel.source.replace(self.text, self.replacement).replace(kernel.entry, self.entry)
        return replace(kernel, entry=self.entry, source=source)

    @contextmanager
    def headers(self) -> Iterator[Path]:
        """A copy of codegen/include with the fault, there within the block. Raises AssertionError where the text does
        not occur."""
        with temporary_folder() as folder:
            shutil.copytree(INCLUDE, folder, dirs_exist_ok=True)
            file = Path(folder, self.header)
            assert file.read_text().count(self.text) == self.count, self.name
            file.write_text(file.read_text().replace(self.text, self.replacement))
            yield Path(folder)


@dataclass(frozen=True)
class Observation:
    """Result of the runs over all seeds. problem: the first one, with its seed; "" for none. passes: through the banks
    of shared memory; sectors: of global memory that were touched. least_...: that were needed."""

    problem: str
    passes: int = 0
    least_passes: int = 0
    sectors: int = 0
    least_sectors: int = 0

    def costs_more(self, sound: "Observation") -> str:
        """Costs of accesses beyond the sound kernel's, for as much memory: "" if nothing."""
        if self.passes * sound.least_passes > 1.01 * sound.passes * self.least_passes:
            return f"{self.passes} passes through the banks where {self.least_passes} have to be"
        if self.sectors * sound.least_sectors > 1.01 * sound.sectors * self.least_sectors:
            return f"{self.sectors} sectors where {self.least_sectors} have to be"
        return ""


def observe(subject: Subject, emulation: Emulation, seeds: Sequence[int] = SEEDS) -> Observation:
    """Runs a kernel on each seed until something is wrong."""
    runs: list[Run] = []
    problem = ""
    for seed in seeds:
        try:
            problem, run = subject.run(emulation, seed)
            runs.append(run)
        except EmulatorFault as e:
            problem = str(e)
        if problem:
            problem += f" (seed {seed})"
            break
    conflicts, sectors = [c for r in runs for c in r.conflicts], [s for r in runs for s in r.sectors]
    return Observation(
        problem,
        sum(c.passes for c in conflicts),
        sum(c.least for c in conflicts),
        sum(s.touched for s in sectors),
        sum(s.least for s in sectors),
    )


class Faults:
    """A list of faults, compiled together: unchanged kernels and changed ones of an architecture in one file, those
    with changed headers in files of their own."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = {f.name: f for f in faults}
        assert len(self.faults) == len(faults), "names differ"
        self._built: dict[str, dict[str, Emulation]] = {}

    @property
    def names(self) -> list[str]:
        return list(self.faults)

    def check(self, name: str, drawn: frozenset[str]) -> str:
        """How the fault shows. Raises AssertionError where the unchanged kernel does not pass, or the changed one
        does. drawn: names of all faults that are checked, since these are compiled together."""
        fault = self.faults[name]
        sound = observe(fault.subject, self._emulation(fault.subject, fault.subject.kernel().entry, drawn))
        assert not sound.problem, f"unchanged: {sound.problem}"
        if fault.header:
            with fault.headers() as headers:
                [emulation] = build([fault.changed()], fault.subject.arch, headers)
        else:
            emulation = self._emulation(fault.subject, fault.entry, drawn)
        found = observe(fault.subject, emulation)
        costs = found.costs_more(sound)
        assert found.problem or costs, f"{name}: nobody noticed"
        assert fault.report in found.problem, f"{name}: {found.problem}"
        return found.problem or costs

    def _emulation(self, subject: Subject, entry: str, drawn: frozenset[str]) -> Emulation:
        if subject.arch not in self._built:
            mine = [f for f in self.faults.values() if f.subject.arch == subject.arch and f.name in drawn]
            kernels = {k.entry: k for f in mine for k in (f.subject.kernel(), *([] if f.header else [f.changed()]))}
            self._built[subject.arch] = {e.entry: e for e in build(list(kernels.values()), subject.arch)}
        return self._built[subject.arch][entry]


@lru_cache(maxsize=64)
def _case(text: str, ranges: tuple[Range, ...]) -> Case:
    case = make_case(parse_graph(text).graph, 0)
    others = [change(case.input_sets[0].inputs) for change in ranges]
    sets = (InputSet(inputs, reference(case.graph, inputs)) for inputs in others)
    return replace(case, input_sets=(*case.input_sets, *sets))


def _spread(array: Array, strides: Sequence[int], span: int) -> Array:
    """The bytes of a tensor as it lies in memory."""
    raw = np.zeros(span * array.itemsize, np.uint8)
    if span:
        strided(raw, array.dtype, array.shape, strides)[...] = array
    return raw


def _apart(arrays: Sequence[Array]) -> list[Array]:
    """Copies from multiples of 256 bytes on, in this order and so far from each other that what lies behind one, or in
    front of it, belongs to nothing else: where the heap puts them differs from process to process."""
    starts = list(accumulate((-(-a.nbytes // 256) * 256 + APART_BYTES for a in arrays), initial=APART_BYTES))
    whole = np.zeros(starts[-1] + 256, np.uint8)
    whole = whole[-int(whole.ctypes.data) % 256 :]
    copies: list[Array] = []
    for array, start in zip(arrays, starts, strict=False):
        copy = whole[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        copy[...] = array
        copies.append(copy)
    return copies
