"""Child process that runs CUDA kernels in the emulator: checks candidates on several orders of threads, runs plans. It
gives no times. Library calls are computed by NumPy."""

import ctypes
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from codegen.child import bench_protocol
from codegen.child.bench_protocol import Unloadable, read_program
from codegen.child.case import Array, Case, Proven, Verdict, judge, make_case, proven_of
from codegen.child.cpu_memory import CheckMemory, temporaries, tensor_layout
from codegen.child.serve import Channel, JobFailure, serve
from codegen.gemm.call_arrays import compute_call
from codegen.hardware.libraries import is_call
from codegen.launch.cpu import GuardedTensor
from codegen.launch.emulator import Emulation, EmulatorFault, Run, Tensor, load_kernels, load_runtime
from codegen.sandbox.object_cache import object_bytes
from fusion_ir.accuracy.tolerance import Order
from fusion_ir.dtype import DTYPES
from fusion_ir.records import LibraryCall, Status, TensorMapSpec
from fusion_ir.text.printing import parse_graph

MOST_CASES = 3
SLOWER = 10.0  # than a CPU's kernels may be, for which limits are made
# Of the runs that check a candidate: seeds on the first inputs, at the ends of pages, and on the last, at beginnings.
SEEDS = ((0, 1, 3), (2, 4))
NOT_TIMED = "checked in the emulator, not timed"


class EmulatedCase:
    """A case with the memory that its candidates share."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._guards: dict[tuple[int, int, bool], GuardedTensor] = {}
        checked = (0, True), (len(case.input_sets) - 1, False)
        self.checks = tuple((CheckMemory(case, *where, self._guards), where[0]) for where in checked)


_cases: OrderedDict[tuple[str, int, Proven], EmulatedCase] = OrderedDict()


def prepare(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Does what `bench` needs for the first programs of a graph: samples inputs, interprets it, fills memory."""
    _prepare(message["graph"], message["seed"])
    return {}


def bench(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Checks `programs` as `codegen.child.bench_protocol` says, and has no times in its result."""
    return bench_protocol.bench(EmulatorBench(message, channel), message, channel)


class EmulatorBench:
    """The emulator, as `BenchDevice` says."""

    def __init__(self, message: dict[str, Any], channel: Channel) -> None:
        load_runtime(Path(message["runtime"]))
        self._message, self._channel = message, channel
        self._prepared = _prepare(message["graph"], message["seed"], proven_of(message))

    def load(self, text: Mapping[str, Any]) -> "EmulatedCandidate":
        graph = self._prepared.case.graph
        try:
            return EmulatedCandidate(text, len(graph.inputs), len(graph.outputs))
        except OSError as e:
            raise Unloadable(Status.compile_failed, str(e)) from e

    def check(self, index: int, candidate: "EmulatedCandidate") -> Verdict:
        return _check(self._prepared, candidate, self._channel, index, self._message)

    def time(self, candidates: dict[int, "EmulatedCandidate"]) -> dict[str, Any]:
        timing: dict[str, Any] = {"samples_us": [], "note": NOT_TIMED, "warm_us": None, "sets": 1}
        return {"timings": {str(i): timing for i in candidates}, "surroundings": None}


def run(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """`run` of cpu_bench.py in the emulator: runs `program` once on tensors in files. A fault that the emulator finds
    fails the job. Nothing is kept: prologues run every time."""
    load_runtime(Path(message["runtime"]))
    inputs = len(message["inputs"])
    candidate = EmulatedCandidate(message["program"], inputs, len(message["outputs"]))
    table = [tensor_layout(t, 256) for t in (*message["inputs"], *message["outputs"])]
    memory: list[GuardedTensor] = [GuardedTensor(t.bytes, t.alignment, True) for t in table]
    for place in memory:
        place.reset(0xFF)
    for tensor, layout, place in zip(message["inputs"], table, memory, strict=False):
        if layout.span:
            layout.view(place.bytes)[...] = np.fromfile(tensor["file"], layout.dtype.numpy).reshape(layout.sizes)
    channel.beat(0, SLOWER * message["kernel_seconds"])
    try:
        candidate.launch([(p.address, t.bytes) for p, t in zip(memory, table, strict=True)], 0xFF, seed=0)
    except EmulatorFault as e:
        raise JobFailure(Status.crashed, str(e)) from e
    channel.beat(-1, message["seconds"])
    for i, tensor in enumerate(message["outputs"]):
        which: int = candidate.aliases.get(i, inputs + i)
        np.ascontiguousarray(table[which].view(memory[which].bytes)).tofile(tensor["file"])
    return {}


class EmulatedCandidate:
    """A kernel or a plan, its functions loaded: steps over a table of inputs, outputs and temporaries. once: number of
    first steps that are a prologue. Raises OSError."""

    def __init__(self, text: Mapping[str, Any], inputs: int, outputs: int) -> None:
        read = read_program(text, inputs, outputs)
        names = [*(f"in{i}" for i in range(inputs)), *(f"out{i}" for i in range(outputs))]
        self.names = [*names, *(f"tmp{i}" for i in range(len(read.buffers)))]
        self.inputs = inputs
        self.once, self.buffers, self.kept = read.once, read.buffers, read.kept
        self.order: Order = read.order  # see `judge`
        self.aliases = read.aliases
        self._steps: list[tuple[Emulation | LibraryCall, list[int], int]] = []
        for step, places in read.steps:
            if is_call(step["libraries"]):
                call = LibraryCall.model_validate_json(object_bytes(step["binary"]))
                self._steps.append((call, places, step["reads"]))
                continue
            emulation = Emulation(
                step["entry"],
                load_kernels(step["binary"]),
                tuple(step["grid"]),
                tuple(step["block"]),
                step["shared_bytes"],
                (step.get("cluster", 1), 1, 1),
                tuple(TensorMapSpec.model_validate(m) for m in step.get("tensor_maps", ())),
            )
            self._steps.append((emulation, places, step["reads"]))

    def launch(self, tensors: Sequence[tuple[int, int]], poison: int, seed: int) -> list[Run]:
        """Runs all steps; those behind a prologue run twice, the second time with all temporaries poisoned that are not
        kept. tensors: (address, bytes) of inputs and outputs. Raises EmulatorFault."""
        buffers = temporaries(self.buffers, poison)
        table = [*tensors, *((b.address, size) for b, size in zip(buffers, self.buffers, strict=True))]
        written = [None if i < self.inputs else np.zeros(size, np.uint8) for i, (_, size) in enumerate(table)]
        runs = [self._step(step, table, written, seed) for step in self._steps]
        if not self.once:
            return runs
        for k in set(range(len(buffers))).difference(self.kept):
            buffers[k].bytes[: self.buffers[k]] = poison
            written[len(tensors) + k] = np.zeros(self.buffers[k], np.uint8)
        return runs + [self._step(step, table, written, seed) for step in self._steps[self.once :]]

    def _step(
        self,
        step: tuple[Emulation | LibraryCall, list[int], int],
        table: Sequence[tuple[int, int]],
        written: Sequence[np.ndarray[Any, np.dtype[np.uint8]] | None],
        seed: int,
    ) -> Run:
        emulation, places, reads = step
        if isinstance(emulation, LibraryCall):
            return _called(emulation, [table[p] for p in places], [written[p] for p in places])
        changed = set(places[reads:])
        tensors = [
            Tensor(self.names[p], "output" if p in changed else "input", *table[p], written[p])
            for p in dict.fromkeys(places)
        ]
        return emulation.run([table[p][0] for p in places], tensors, seed)


def _called(
    call: LibraryCall,
    tensors: Sequence[tuple[int, int]],
    written: Sequence[np.ndarray[Any, np.dtype[np.uint8]] | None],
) -> Run:
    """Computes a call on the memory of the step's arguments. Raises EmulatorFault."""
    matrices = [call.a, call.b, call.d, *([call.c] if call.c else []), *([call.bias] if call.bias else [])]
    dtypes = {m.tensor: DTYPES[m.dtype].numpy for m in matrices}
    memory = [_memory(*tensor, dtypes.get(i, np.dtype(np.uint8))) for i, tensor in enumerate(tensors)]
    try:
        compute_call(call, memory)
    except ValueError as e:
        raise EmulatorFault(f"{call.library}: {e}") from e
    stored = written[call.d.tensor]
    if stored is not None:
        stored[:] = 1
    return Run(waited=False, switches=0, accesses=0)


def _memory(address: int, size: int, dtype: np.dtype[Any]) -> Array:
    """The elements that fit into `size` bytes: buffers may be longer than the tensor that they hold."""
    raw: Any = (ctypes.c_uint8 * (size // dtype.itemsize * dtype.itemsize)).from_address(address)
    return np.frombuffer(raw, np.uint8).view(dtype)


def _check(
    prepared: EmulatedCase, candidate: EmulatedCandidate, channel: Channel, index: int, message: dict[str, Any]
) -> Verdict:
    errors = [0.0]
    for (memory, input_set), seeds in zip(prepared.checks, SEEDS, strict=True):
        for seed in seeds:
            channel.beat(index, message["seconds"])
            memory.poison_outputs()
            sizes = [t.bytes for t in (*memory.inputs, *memory.outputs)]
            channel.beat(index, SLOWER * message["kernel_seconds"])
            try:
                runs = candidate.launch(list(zip(memory.addresses, sizes, strict=True)), memory.poison, seed)
            except EmulatorFault as e:
                return Verdict(f"{e} (seed {seed})", None)
            channel.beat(index, message["seconds"])
            verdict = judge(prepared.case, input_set, _results(memory, candidate), candidate.order)
            problem = verdict.problem or memory.trespass()
            if problem:
                return Verdict(f"{problem} (seed {seed})", verdict.max_rel_error)
            if verdict.max_rel_error is not None:
                errors.append(verdict.max_rel_error)
            if not any(r.waited for r in runs):
                break  # threads that wait for nobody do the same in any order
    return Verdict("", max(errors))


def _results(memory: CheckMemory, candidate: EmulatedCandidate) -> list[Array]:
    count = len(memory.inputs)
    values = [memory.input(i) for i in range(count)] + [memory.result(i) for i in range(len(memory.outputs))]
    return [values[candidate.aliases.get(i, count + i)] for i in range(len(memory.outputs))]


def _prepare(text: str, seed: int, proven: Proven = ()) -> EmulatedCase:
    key = text, seed, proven
    if key not in _cases:
        while len(_cases) >= MOST_CASES:
            _cases.popitem(last=False)
        _cases[key] = EmulatedCase(_case(text, seed, proven))
    _cases.move_to_end(key)
    return _cases[key]


@lru_cache(maxsize=2)
def _case(text: str, seed: int, proven: Proven) -> Case:
    return make_case(parse_graph(text).graph, seed, proven)


if __name__ == "__main__":
    serve({"prepare": prepare, "bench": bench, "run": run})
