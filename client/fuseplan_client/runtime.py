"""Running a plan: guards, its prologue, temporaries, and CUDA graphs of the whole plan."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from fuseplan_client.bundle import Bundle, read_bundle
from fuseplan_client.fill import CARRIERS, random_values, read_values
from fuseplan_client.guards import check
from fuseplan_client.launches import Launches, check_arch, cupy, of_address
from fuseplan_client.outputs import Outputs
from fuseplan_client.plan import ALIGNMENT, ITEM_BYTES, Tensor
from fuseplan_client.prologue import Prologue
from fuseplan_client.tensors import View, view

MOST_GRAPHS = 16
STANDS_IN = {"bf16": "u16", "f8e4m3": "u8", "f8e5m2": "u8"}  # for what CuPy lacks

Tensors = Sequence[Any] | Mapping[str, Any]  # in order, or by name


def load(
    folder: Path | str, *, most_graphs: int = MOST_GRAPHS, server_keys: Iterable[str] | None = None
) -> "LoadedPlan":
    """A plan from its folder, on the current device. server_keys: see `read_bundle`. Raises BundleError, PlanError,
    SignatureError, DeviceError, LibraryError."""
    return LoadedPlan(read_bundle(folder, server_keys=server_keys), most_graphs=most_graphs)


class LoadedPlan:
    """A plan on the device that was current when it was loaded. Calls from one thread at a time.

    Temporaries are one allocation for each stream that calls come on, kept for later calls. The second call with a set
    of addresses on a stream captures the steps as a CUDA graph, which later calls with these addresses launch. At most
    `most_graphs` graphs are kept; the longest unused goes first. Graphs hold addresses: other tensors, another graph.

    The prologue, which computes all that depends on constants alone, runs at the first call, outside of graphs, and its
    results are kept. It runs again where a constant is another tensor, or has another version: the one that the caller
    states (`versions`, by position of the input: anything that compares), or else PyTorch's own count of in-place
    writes. A caller that changes other tensors in place says so: by a version, or by `constants_changed`.

    names: of inputs and outputs, as the folder has them; wherever tensors are taken in order, they are taken by name,
    too. verified: the checks of the plan that its maker states.
    """

    def __init__(self, bundle: Bundle, *, most_graphs: int = MOST_GRAPHS) -> None:
        cp = cupy()
        self.key, self.plan, self.names, self.verified = bundle.key, bundle.plan, bundle.names, bundle.verified
        self._device = cp.cuda.Device()
        check_arch(self.plan.arch, str(self._device.compute_capability))
        self._launches = Launches(bundle, int(self._device.id))
        self._prologue = Prologue(self.plan, self._launches)
        self._most_graphs = most_graphs
        self._capturing: Any = None
        self._temporaries: dict[int, tuple[Any, tuple[int, ...]]] = {}
        self._graphs: OrderedDict[tuple[int, ...], Any] = OrderedDict()  # None: seen once, not captured yet
        self._aliases = dict(self.plan.aliases)

    def __call__(
        self, /, *inputs: Any, stream: Any = None, versions: Mapping[int | str, Any] = {}, **named: Any
    ) -> Outputs:
        """Outputs of the plan as new CuPy arrays, in order and by name; an output that is an input as it stands is the
        caller's tensor. Inputs: in order, by name, or as one dict, which takes any names. Raises GuardError,
        TypeError."""
        given, outputs = self.names.arguments(inputs, named), self.empty_outputs()
        self.run(given, outputs, stream=stream, versions=versions)
        return Outputs((self._result(i, given, outputs) for i in range(len(outputs))), self.names.outputs)

    def run(
        self, inputs: Tensors, outputs: Tensors, *, stream: Any = None, versions: Mapping[int | str, Any] = {}
    ) -> None:
        """Computes into `outputs`, in stream order. stream: a cudaStream_t as a number, anything with `ptr` (CuPy) or
        `cuda_stream` (PyTorch); CuPy's current one by default. An output that is another tensor as it stands is not
        written; None will do for it. Raises GuardError, TypeError."""
        addresses, at = self._checked(inputs, outputs, stream, versions)
        key = (at, *addresses)
        if key not in self._graphs:
            self._remember(key, None)
            self._launches.queue(addresses, at)
            return
        graph = self._graphs[key]
        if graph is None:
            graph = self._captured(addresses)
            self._remember(key, graph)
        self._graphs.move_to_end(key)
        graph.launch(of_address(at))

    def launch(
        self, inputs: Tensors, outputs: Tensors, *, stream: Any = None, versions: Mapping[int | str, Any] = {}
    ) -> None:
        """`run`, step by step and never as a CUDA graph of its own: for streams that somebody else captures. Raises
        PrologueError on such a stream where `prepare` did not see these constants."""
        addresses, at = self._checked(inputs, outputs, stream, versions)
        self._launches.queue(addresses, at)

    def prepare(self, inputs: Tensors, *, stream: Any = None, versions: Mapping[int | str, Any] = {}) -> None:
        """Runs the prologue, unless its results for these constants are there, and nothing else. Raises GuardError."""
        self._checked(inputs, None, stream, versions)

    def constants_changed(self) -> None:
        """Has the prologue run again at the next call: constants may have other values than at the last one."""
        self._prologue.forget()

    def empty_outputs(self) -> list[Any]:
        """Memory for the outputs from CuPy's allocator, laid out as the plan writes them; None for those that are other
        tensors. Types that CuPy lacks come as unsigned integers of their width."""
        return [None if i in self._aliases else _empty(spec) for i, spec in enumerate(self.plan.outputs)]

    def random_inputs(self, seed: int = 0) -> list[Any]:
        """Inputs to try the plan on, as CuPy arrays laid out as the plan reads them (see `fill.random_values`)."""
        generator = np.random.default_rng(seed)
        return [_filled(spec, random_values(spec, generator)) for spec in self.plan.inputs]

    def read_inputs(self, file: Path | str) -> list[Any]:
        """Inputs from a safetensors file, whose tensors have the names of the inputs, as CuPy arrays laid out as the
        plan reads them. Raises InputsError, OSError."""
        values = read_values(file, self.names.inputs, self.plan.inputs)
        return [_filled(spec, flat) for spec, flat in zip(self.plan.inputs, values, strict=True)]

    @property
    def graphs(self) -> int:
        """The number of captured CUDA graphs that are held."""
        return sum(graph is not None for graph in self._graphs.values())

    @property
    def prologue_runs(self) -> int:
        """How often the prologue ran."""
        return self._prologue.runs

    def _checked(
        self, inputs: Tensors, outputs: Tensors | None, stream: Any, versions: Mapping[int | str, Any]
    ) -> tuple[tuple[int, ...], int]:
        """Addresses of inputs, outputs and temporaries, and the stream's own. The prologue has run for the inputs.
        outputs: None where nothing is to be written."""
        inputs, specs = self.names.given(inputs), self.plan.outputs
        read = [_as_planned(x, spec) for x, spec in zip_longest(inputs, self.plan.inputs[: len(inputs)])]
        written = [
            None if i in self._aliases else _as_planned(x, specs[i] if i < len(specs) else None)
            for i, x in enumerate(self.names.written(outputs or (), self._aliases))
        ]
        if outputs is None:
            written = [None] * len(specs)
        check(self.plan, read, written, int(self._device.id), self.names.label)
        at = _stream(stream)
        tensors = [v.address if v is not None else 0 for v in (*read, *written)]
        addresses = (*tensors, *self._scratch(at))
        self._prologue.ensure(inputs, read, self.names.positions(versions), addresses, at)
        return addresses, at

    def _scratch(self, stream: int) -> tuple[int, ...]:
        """Addresses of the temporaries for a stream: calls on one stream run one after the other. Kept buffers are
        shared by all streams."""
        if stream not in self._temporaries:
            kept = self._prologue.addresses(stream)
            offsets, end = list[int](), 0
            for i, buffer in enumerate(self.plan.buffers):
                offsets.append(end)
                end += 0 if i in kept else -(-buffer.bytes // ALIGNMENT) * ALIGNMENT
            with of_address(stream):  # the pool's memory for this stream: nobody else's work is on it
                memory = cupy().cuda.alloc(end) if end else None
            first = int(memory.ptr) if memory is not None else 0
            places = tuple(kept.get(i, first + offset) for i, offset in enumerate(offsets))
            self._temporaries[stream] = memory, places
        return self._temporaries[stream][1]

    def _captured(self, addresses: Sequence[int]) -> Any:
        """The steps as a graph: captured on a stream of our own, since a legacy default stream cannot be."""
        if self._capturing is None:
            self._capturing = cupy().cuda.Stream(non_blocking=True)
        with self._capturing:
            self._capturing.begin_capture()
            try:
                self._launches.queue(addresses, int(self._capturing.ptr))
            except BaseException:
                with suppress(
                    Exception
                ):  # what went wrong is the error to see; a broken capture ends in one of its own
                    self._capturing.end_capture()
                self._capturing = None
                raise
            return self._capturing.end_capture()

    def _remember(self, key: tuple[int, ...], graph: Any) -> None:
        self._graphs[key] = graph
        while len(self._graphs) > self._most_graphs:
            self._graphs.popitem(last=False)

    def _result(self, i: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        ref = self._aliases.get(i)
        if ref is None:
            return outputs[i]
        return inputs[ref.index] if ref.place == "in" else self._result(ref.index, inputs, outputs)


def _empty(spec: Tensor) -> Any:
    return _filled(spec, None)


def _filled(spec: Tensor, flat: Any) -> Any:
    """Memory of a tensor, with these values from its first element to behind its last; None: with whatever is there."""
    cp = cupy()
    size = ITEM_BYTES[spec.dtype]
    memory = cp.empty(max(spec.span, 1), CARRIERS[spec.dtype])
    if flat is not None and spec.span:
        memory.set(flat)
    return cp.lib.stride_tricks.as_strided(memory, spec.shape, tuple(s * size for s in spec.strides))


def _as_planned(tensor: Any, spec: Tensor | None) -> View:
    """The view of a tensor. Unsigned integers count as the plan's dtype where CuPy lacks that and has them instead."""
    found = view(tensor)
    stands_in = spec is not None and STANDS_IN.get(spec.dtype) == found.dtype
    return View(found.address, found.shape, spec.dtype, found.strides, found.device) if stands_in and spec else found


def _stream(stream: Any) -> int:
    if stream is None:
        return int(cupy().cuda.get_current_stream().ptr)
    for name in ("ptr", "cuda_stream"):
        if hasattr(stream, name):
            return int(getattr(stream, name))
    return int(stream)
