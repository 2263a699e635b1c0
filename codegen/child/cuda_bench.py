"""Child process that runs kernels on a CUDA device: checks and times candidates, runs plans. Needs CuPy and a device;
not exercised in CI, which has no GPU."""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from codegen.child import bench_protocol, cublaslt
from codegen.child.bench_protocol import Unloadable, race_until_right
from codegen.child.case import Proven, Verdict, judge, make_case, proven_of
from codegen.child.cpu_memory import tensor_layout
from codegen.child.cuda_candidate import CudaCandidate
from codegen.child.cuda_ceilings import Eviction, ceilings
from codegen.child.cuda_checks import CheckTensors, CudaCase
from codegen.child.cuda_memory import DeviceTensors, cupy
from codegen.child.nvml import CudaWatch
from codegen.child.prologue_cache import PrologueCache
from codegen.child.serve import Channel, JobFailure, race_seconds, serve
from codegen.child.tensor_maps import TensorMapError
from codegen.hardware.libraries import CUBLASLT
from codegen.hardware.missing_cuda import lacks
from codegen.sandbox.device_lock import turn_in
from codegen.timing.protocol import Timing, median, race
from fusion_ir.records import Device, Status
from fusion_ir.text.printing import parse_graph

WARM_SAMPLES = 5
PROLOGUE_SAMPLES = 3  # of what decides nothing
WAITING_SECONDS = 1800.0  # for the device, at the most: others have limits of their own
MEMORY_SHARE = 0.75  # of the device's memory
# Architectures whose own features (wgmma, TMA, tcgen05) need the suffix.
SUFFIXED = {90: "a", 100: "a", 103: "a"}
_kept = PrologueCache()


def detect(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """The device `number` as a record, or the problem with it."""
    return _described(message["number"], _called_libraries())


def _driver() -> int:
    """The CUDA version that the driver is for, as 1000 major + 10 minor; 0 where there is none, or no CuPy."""
    try:
        return int(cupy().cuda.runtime.driverGetVersion())
    except Exception:  # see `_described`
        return 0


def _described(wanted: int, libraries: dict[str, str]) -> dict[str, Any]:
    try:
        cp = cupy()
        count = cp.cuda.runtime.getDeviceCount()
        if wanted >= count:
            return {"problem": f"cuda:{wanted} is not there, the driver shows {count} devices"}
        facts = cp.cuda.runtime.getDeviceProperties(wanted)
        driver, nvrtc = cp.cuda.runtime.driverGetVersion(), cp.cuda.nvrtc.getVersion()
    except Exception as e:  # a broken driver or installation fails in many ways, all of them "no device"
        return {"problem": f"{type(e).__name__}: {e}"[:300], "lacks": lacks(e, _driver())}
    number = facts["major"] * 10 + facts["minor"]
    device = Device(
        target="cuda",
        name=facts["name"].decode(),
        arch=f"sm_{number}{SUFFIXED.get(number, '')}",
        features=tuple(libraries),
        units=facts["multiProcessorCount"],
        vector_bytes=16,
        cache_bytes=facts["l2CacheSize"],
        memory_bytes=facts["totalGlobalMem"],
        toolchain=", ".join((f"NVRTC {nvrtc[0]}.{nvrtc[1]}", *libraries.values())),
        driver=f"CUDA {driver // 1000}.{driver % 1000 // 10}",
    )
    return {"device": device.model_dump(mode="json")}


def _called_libraries() -> dict[str, str]:
    """Versions of the libraries that steps may call, by name. A library that cannot be loaded is left out, whatever its
    broken installation raises, and plans do without it."""
    try:
        return {CUBLASLT: cublaslt.library_version()}
    except Exception:
        return {}


def find(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """The number of the first device with this `name` and `arch`, or the problem with it."""
    number = 0
    while "problem" not in (found := _described(number, {})):  # whose libraries take a second to load
        if (found["device"]["name"], found["device"]["arch"]) == (message["name"], message["arch"]):
            return {"number": number}
        number += 1
    return found if number == 0 else {"problem": f"none of {number} devices is a {message['name']} ({message['arch']})"}


def prepare(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Does what `bench` needs for the first programs of a graph: samples inputs and interprets it."""
    _prepared(message["graph"], message["seed"])
    return {}


def bench(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Checks and times `programs` as `codegen.child.bench_protocol` says. Takes turns with other processes by itself
    where the message has a `turn`: while results are judged on the host, the device is free for others."""
    began = time.monotonic()
    with _device(message):
        return bench_protocol.bench(CudaBench(message, channel, began), message, channel)


class CudaBench:
    """A CUDA device, as `BenchDevice` says. began: time of `time.monotonic` at which the job began."""

    def __init__(self, message: dict[str, Any], channel: Channel, began: float) -> None:
        self._message, self._channel, self._began = message, channel, began
        self._turns = Turns(message.get("turn"), channel)
        self._inspector = Inspector(channel, message, self._turns)
        self._prepared = _prepared(message["graph"], message["seed"], proven_of(message))

    def load(self, text: Mapping[str, Any]) -> CudaCandidate:
        graph = self._prepared.case.graph
        try:
            return CudaCandidate(text, len(graph.inputs), len(graph.outputs))
        except (cublaslt.CallError, ImportError) as e:
            raise Unloadable(Status.rejected, str(e)) from e

    def check(self, index: int, candidate: CudaCandidate) -> Verdict:
        try:
            return self._inspector.check(self._prepared, candidate, index)
        except cublaslt.CallError as e:
            return Verdict(str(e), None)

    def time(self, candidates: dict[int, CudaCandidate]) -> dict[str, Any]:
        message, turns = self._message, self._turns
        watch = CudaWatch(cupy().cuda.Device(message["number"]).pci_bus_id)
        timings = dict[str, Any]()
        if candidates:
            timings = _time(
                self._prepared, candidates, self._channel, message, watch, turns, self._inspector, self._began
            )
        seen = watch.seen and watch.seen.model_dump(mode="json")
        return {"timings": timings, "surroundings": seen, "waited_seconds": turns.waited_seconds}


def run(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """`run` of cpu_bench.py for a CUDA device: runs `program` once on tensors in files."""
    with _device(message):
        table = [tensor_layout(t, 256) for t in (*message["inputs"], *message["outputs"])]
        inputs = len(message["inputs"])
        candidate = CudaCandidate(message["program"], inputs, len(message["outputs"]))
        tensors, plan, versions = DeviceTensors(table, candidate.temporaries), message["plan"], message["versions"]
        left: DeviceTensors | None = _kept.find(plan, versions) if candidate.once else DeviceTensors([])
        own = left or _kept_tensors(candidate)
        places = tensors.addresses
        addresses = candidate.table(places[: len(table)], places[len(table) :], own.addresses)
        for i, tensor in enumerate(message["inputs"]):
            tensors.write(i, np.fromfile(tensor["file"], table[i].dtype.numpy).reshape(table[i].sizes))
        channel.beat(0, message["kernel_seconds"])
        if left is None:
            candidate.launch(addresses, prologue=True)
            cupy().cuda.Device().synchronize()
            _kept.keep(plan, versions, own)
        candidate.launch(addresses)
        cupy().cuda.Device().synchronize()
        channel.beat(-1, message["seconds"])
        for i, tensor in enumerate(message["outputs"]):
            place = candidate.aliases.get(i, inputs + i)
            np.ascontiguousarray(tensors.read(place)).tofile(tensor["file"])
    return {}


def _kept_tensors(candidate: CudaCandidate) -> DeviceTensors:
    """Memory for the temporaries that the prologue leaves."""
    return DeviceTensors([], [candidate.buffers[k] for k in candidate.kept])


class Turns:
    """Turns on the device, taken by `turn_in`. where: its folder and name; None: the parent holds the turn already.

    waited_seconds: time spent waiting for all turns."""

    def __init__(self, where: Sequence[str] | None, channel: Channel) -> None:
        self.waited_seconds = 0.0
        self._where, self._channel = where, channel

    @contextmanager
    def held(self) -> Generator[None]:
        if self._where is None:
            yield
            return
        self._channel.beat(-1, WAITING_SECONDS)
        asked = time.monotonic()
        with turn_in(Path(self._where[0]), self._where[1]):
            self.waited_seconds += time.monotonic() - asked
            yield


class Inspector:
    """Runs candidates over poisoned memory, in turns with other processes, and gives verdicts on the outputs and on the
    memory around them. Results are judged while other processes have the device."""

    def __init__(self, channel: Channel, message: dict[str, Any], turns: Turns) -> None:
        self._channel, self._message, self._turns = channel, message, turns

    def check(self, prepared: CudaCase, candidate: CudaCandidate, index: int) -> Verdict:
        """Verdict on a candidate's first runs, on the first and the last input set. A candidate with a prologue runs
        twice on each: behind the prologue, and once more on the temporaries that the prologue left."""
        errors = [0.0]
        with self._turns.held():
            self._channel.beat(index, self._message["seconds"])
            checks = prepared.checks
        for memory, poison in checks:
            temporary, kept = DeviceTensors([], candidate.temporaries), _kept_tensors(candidate)
            addresses = candidate.table(memory.addresses, temporary.addresses, kept.addresses)
            launch = partial(candidate.launch, addresses)

            def whole(launch: Callable[..., None] = launch) -> None:
                launch(prologue=True)
                launch()

            for once in [whole, launch] if candidate.once else [launch]:
                verdict = self.run(memory, temporary, poison, candidate, index, once)
                with self._turns.held():
                    trespass = kept.trespass() if candidate.once else ""
                if verdict.problem or trespass:
                    return Verdict(verdict.problem or trespass, verdict.max_rel_error)
                if verdict.max_rel_error is not None:
                    errors.append(verdict.max_rel_error)
        return Verdict("", max(errors))

    def run(
        self,
        memory: CheckTensors,
        temporary: DeviceTensors,
        poison: int,
        candidate: CudaCandidate,
        index: int,
        launch: Callable[[], None],
    ) -> Verdict:
        """Verdict on one run of a candidate on this memory; `launch` queues its launches."""
        channel, message = self._channel, self._message
        with self._turns.held():
            channel.beat(index, message["seconds"])
            memory.reset(poison)
            for k in range(len(temporary.sizes)):
                temporary.fill(k, poison)
            cupy().cuda.Device().synchronize()
            channel.beat(index, message["kernel_seconds"])
            launch()
            cupy().cuda.Device().synchronize()
            channel.beat(index, message["seconds"])
            known = None if candidate.aliases else memory.known(candidate.order)
            trespass = temporary.trespass() or ("" if known else memory.trespass())
            outputs = [] if known else memory.outputs(candidate.aliases)
            left = None if known or candidate.aliases else memory.copy()
        verdict = known or judge(memory.case, memory.input_set, outputs, candidate.order)
        if verdict.problem or trespass:
            return Verdict(verdict.problem or trespass, verdict.max_rel_error)
        if left is not None:
            memory.keep(left, verdict, candidate.order)
        return verdict


def _time(
    prepared: CudaCase,
    candidates: dict[int, CudaCandidate],
    channel: Channel,
    message: dict[str, Any],
    watch: CudaWatch,
    turns: Turns,
    inspector: Inspector,
    began: float,
) -> dict[str, Any]:
    """Races the candidates, each captured as a CUDA graph, and evicts the L2 cache before each run: the eviction keeps
    the device busy while the host queues the graph, so that the host's part of a launch is not timed."""
    channel.beat(-1, message["seconds"])
    cp = cupy()
    sizes = [max(column) for column in zip_longest(*(c.temporaries for c in candidates.values()), fillvalue=0)]
    stream = cp.cuda.Stream(non_blocking=True)
    events: list[tuple[Any, Any]] = []
    eviction = Eviction(message["number"], message["cache_bytes"])
    with turns.held():
        memory, poison = prepared.checks[0]
        memory.reset(poison)
        temporary, kept = DeviceTensors([], sizes), {i: _kept_tensors(c) for i, c in candidates.items()}
        tables = {i: c.table(memory.addresses, temporary.addresses, kept[i].addresses) for i, c in candidates.items()}
        cp.cuda.Device().synchronize()
        prologues = {i: c.captured(tables[i], stream, prologue=True) for i, c in candidates.items() if c.once}
        graphs = {i: c.captured(tables[i], stream) for i, c in candidates.items()}

    def times_us(graph: Any, samples: int, cold: bool = True) -> list[float]:
        events.extend((cp.cuda.Event(), cp.cuda.Event()) for _ in range(samples - len(events)))
        with stream:
            for start, end in events[:samples]:
                eviction.launch()
                if not cold:
                    graph.launch(stream)
                start.record(stream)
                graph.launch(stream)
                end.record(stream)
        stream.synchronize()
        return [float(cp.cuda.get_elapsed_time(start, end)) * 1e3 for start, end in events[:samples]]

    def visit(i: int, samples: int) -> list[float]:
        channel.beat(i, message["kernel_seconds"] * (samples + 1))
        return times_us(graphs[i], samples)

    def warm_us(i: int) -> float:
        channel.beat(i, message["kernel_seconds"] * 2 * WARM_SAMPLES)
        return median(times_us(graphs[i], WARM_SAMPLES, cold=False))

    def problem(i: int) -> str:
        """Runs a candidate, right when it was checked, once more; the problem as a message, "" for none."""

        def launch() -> None:
            graphs[i].launch(stream)
            stream.synchronize()

        return inspector.run(memory, temporary, poison, candidates[i], i, launch).problem

    with turns.held():
        prologues_us = dict[int, float]()
        for i, graph in prologues.items():
            channel.beat(i, message["kernel_seconds"] * (PROLOGUE_SAMPLES + 1))
            prologues_us[i] = median(times_us(graph, PROLOGUE_SAMPLES))
    warm: dict[int, float] = {}

    def raced(order: list[int]) -> list[Timing]:
        with turns.held():
            with channel.timing():
                timings = race(
                    len(order),
                    lambda k, samples: watch.disturbance.take(lambda: visit(order[k], samples)),
                    seconds=race_seconds(message, began + turns.waited_seconds),
                    seed=message["seed"],
                    watch=watch,
                )
            warm.clear()
            warm.update({i: warm_us(i) for i, timing in zip(order, timings, strict=True) if not timing.note})
        return timings

    def reviewed(finalists: list[int]) -> dict[int, Verdict]:
        found = {i: problem(i) for i in finalists}
        return {i: Verdict(f"right when checked, wrong when timed: {p}", None) for i, p in found.items() if p}

    return {
        str(i): {
            "samples_us": timing.samples_us,
            "note": timing.note,
            "warm_us": warm.get(i),
            "sets": 1,
            "prologue_us": prologues_us.get(i),
        }
        for i, timing in race_until_right(list(candidates), raced, reviewed, channel).items()
    }


@contextmanager
def _device(message: dict[str, Any]) -> Generator[None]:
    """Works on device `number`. A fault of a kernel leaves the device's context unusable: the job fails, the parent
    ends this process, starts another and lets it run the probe (codegen/workbench/timing_child.py)."""
    cp = cupy()
    try:
        with cp.cuda.Device(message["number"]):
            cp.get_default_memory_pool().set_limit(fraction=MEMORY_SHARE)
            yield
    except cp.cuda.memory.OutOfMemoryError as e:
        raise JobFailure(Status.out_of_memory, str(e)) from e
    except (cp.cuda.runtime.CUDARuntimeError, cp.cuda.driver.CUDADriverError, TensorMapError) as e:
        raise JobFailure(Status.crashed, str(e)) from e


@lru_cache(maxsize=2)
def _prepared(text: str, seed: int, proven: Proven = ()) -> CudaCase:
    return CudaCase(make_case(parse_graph(text).graph, seed, proven))


if __name__ == "__main__":
    serve({"detect": detect, "find": find, "ceilings": ceilings, "prepare": prepare, "bench": bench, "run": run})
