"""Child process that runs kernels on a CUDA device: checks and times candidates, runs plans. Needs CuPy and a device;
not exercised in CI, which has no GPU."""

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from codegen.child import cublaslt
from codegen.child.case import Case, Verdict, judge, make_case, verdict_message
from codegen.child.cpu_memory import POISON, tensor_layout
from codegen.child.cuda_ceilings import Eviction, ceilings
from codegen.child.cuda_memory import DeviceTensors, check_tensors, cupy
from codegen.child.nvml import CudaWatch
from codegen.child.serve import Channel, JobFailure, serve
from codegen.child.tensor_maps import Parameters, TensorMapError
from codegen.device_turn import turn_in
from codegen.libraries import CUBLASLT, is_call
from codegen.measure import median, race
from fusion_ir.records import Device, LibraryCall, Status, TensorMapSpec
from fusion_ir.text import parse_graph

WARM_SAMPLES = 5
WAITING_SECONDS = 1800.0  # for the device, at the most: others have limits of their own
MEMORY_SHARE = 0.75  # of the device's memory
STATIC_SHARED_BYTES = 48 << 10
# Architectures whose own features (wgmma, TMA, tcgen05) need the suffix.
SUFFIXED = {90: "a", 100: "a", 103: "a"}


def detect(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """The device `number` as a record, or the problem with it."""
    return _described(message["number"], _called_libraries())


def _described(wanted: int, libraries: dict[str, str]) -> dict[str, Any]:
    try:
        cp = cupy()
        count = cp.cuda.runtime.getDeviceCount()
        if wanted >= count:
            return {"problem": f"cuda:{wanted} is not there, the driver shows {count} devices"}
        facts = cp.cuda.runtime.getDeviceProperties(wanted)
        driver, nvrtc = cp.cuda.runtime.driverGetVersion(), cp.cuda.nvrtc.getVersion()
    except Exception as e:  # a broken driver or installation fails in many ways, all of them "no device"
        return {"problem": f"{type(e).__name__}: {e}"[:300]}
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
    """Libraries that steps may be calls of, by name, with their versions. Without one, plans do without it: broken
    installations fail in as many ways as there are."""
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
    _case(message["graph"], message["seed"])
    return {}


def bench(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """As `bench` in cpu_bench.py. Takes turns with other processes by itself, where the message says how: while results
    are judged on the host, the device is free for others."""
    turns = Turns(message.get("turn"), channel)
    with _device(message):
        case = _case(message["graph"], message["seed"])
        inputs, outputs = len(case.graph.inputs), len(case.graph.outputs)
        candidates: dict[int, Candidate] = {}
        for i, text in enumerate(message["programs"]):
            try:
                candidate = Candidate(text, inputs, outputs)
            except (cublaslt.CallError, ImportError) as e:
                channel.send({"checked": i, "status": Status.rejected.value, "detail": str(e), "max_rel_error": None})
                continue
            candidates[i] = candidate
            if i in message["passed"]:
                continue
            try:
                verdict = _check(case, candidate, channel, i, message, turns)
            except cublaslt.CallError as e:
                verdict = Verdict(str(e), None)
            if verdict.problem:
                del candidates[i]
            channel.send(verdict_message(i, verdict))
        watch = CudaWatch(cupy().cuda.Device(message["number"]).pci_bus_id)
        timings = _time(case, candidates, channel, message, watch, turns) if candidates else {}
        seen = watch.seen and watch.seen.model_dump(mode="json")
        return {"timings": timings, "surroundings": seen, "waited_seconds": turns.waited_seconds}


def run(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """As `run` in cpu_bench.py."""
    with _device(message):
        table = [tensor_layout(t, 256) for t in (*message["inputs"], *message["outputs"])]
        inputs = len(message["inputs"])
        candidate = Candidate(message["program"], inputs, len(message["outputs"]))
        tensors = DeviceTensors(table, candidate.buffers)
        for i, tensor in enumerate(message["inputs"]):
            tensors.write(i, np.fromfile(tensor["file"], table[i].dtype.numpy).reshape(table[i].sizes))
        channel.beat(0, message["kernel_seconds"])
        candidate.launch(tensors.addresses)
        cupy().cuda.Device().synchronize()
        channel.beat(-1, message["seconds"])
        for i, tensor in enumerate(message["outputs"]):
            place = candidate.aliases.get(i, inputs + i)
            np.ascontiguousarray(tensors.read(place)).tofile(tensor["file"])
    return {}


class Turns:
    """The device's turn, as `turn_in` (`where`: its folder and name) has it; None: somebody else holds it for us.

    waited_seconds: until it was ours, in all."""

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


class Candidate:
    """A kernel or a plan, its functions loaded: steps over the table inputs, outputs, temporaries. Raises CallError and
    ImportError for library calls that cannot be made here."""

    def __init__(self, text: dict[str, Any], inputs: int, outputs: int) -> None:
        first = {"in": 0, "out": inputs, "tmp": inputs + outputs}
        self.buffers: tuple[int, ...] = tuple(text["buffers"])
        self.aliases = {i: first[place] + index for i, (place, index) in text["aliases"]}
        self._steps: list[tuple[Any, dict[str, Any], list[int], list[TensorMapSpec]]] = []
        for step in text["steps"]:
            places = [first[place] + index for place, index in step["args"]]
            if is_call(step["libraries"]):
                self._steps.append((_call(step["binary"]), step, places, []))
                continue
            function = _module(step["binary"]).get_function(step["entry"])
            if step["shared_bytes"] > STATIC_SHARED_BYTES:
                function.max_dynamic_shared_size_bytes = step["shared_bytes"]
            maps = [TensorMapSpec.model_validate(m) for m in step.get("tensor_maps", ())]
            self._steps.append((function, step, places, maps))

    def launch(self, addresses: Sequence[int]) -> None:
        """Queues all steps on the current stream."""
        for function, step, places, maps in self._steps:
            if isinstance(function, cublaslt.Call):
                function.launch([addresses[p] for p in places], cupy().cuda.get_current_stream().ptr)
                continue
            if maps:  # CuPy's own way of launching takes no parameters of 128 bytes
                parameters = Parameters([addresses[p] for p in places], maps)
                shape = (*step["grid"], *step["block"], step["shared_bytes"])
                stream = cupy().cuda.get_current_stream().ptr
                cupy().cuda.driver.launchKernel(function.kernel.ptr, *shape, stream, parameters.address, 0)
                continue
            args = tuple(np.uint64(addresses[p]) for p in places)
            function(tuple(step["grid"]), tuple(step["block"]), args, shared_mem=step["shared_bytes"])

    def captured(self, addresses: Sequence[int], stream: Any) -> Any:
        """The steps as a CUDA graph. They run once before: what a library or the driver loads at a first launch cannot
        be loaded while launches are only noted down."""
        with stream:
            self.launch(addresses)
            stream.synchronize()
            stream.begin_capture()
            self.launch(addresses)
            return stream.end_capture()


def _check(
    case: Case, candidate: Candidate, channel: Channel, index: int, message: dict[str, Any], turns: Turns
) -> Verdict:
    inputs = len(case.graph.inputs)
    errors = [0.0]
    for trial, poison in ((0, POISON[0]), (len(case.trials) - 1, POISON[1])):
        with turns.held():
            channel.beat(index, message["seconds"])
            tensors = check_tensors(case, trial, candidate.buffers, poison)
            channel.beat(index, message["kernel_seconds"])
            candidate.launch(tensors.addresses)
            cupy().cuda.Device().synchronize()
            channel.beat(index, message["seconds"])
            places = [candidate.aliases.get(i, inputs + i) for i in range(len(case.graph.outputs))]
            outputs, trespass = [tensors.read(p) for p in places], tensors.trespass()
        verdict = judge(case, trial, outputs)
        problem = verdict.problem or trespass
        if problem:
            return Verdict(problem, verdict.max_rel_error)
        if verdict.max_rel_error is not None:
            errors.append(verdict.max_rel_error)
    return Verdict("", max(errors))


def _time(
    case: Case,
    candidates: dict[int, Candidate],
    channel: Channel,
    message: dict[str, Any],
    watch: CudaWatch,
    turns: Turns,
) -> dict[str, Any]:
    """Races the candidates, each a CUDA graph, behind an evicted L2 cache: the device is busy with that while the host
    queues what is timed, so that nobody is timed launching."""
    channel.beat(-1, message["seconds"])
    cp = cupy()
    tensors = check_tensors(case, 0, (), POISON[0])
    most = max(len(c.buffers) for c in candidates.values())
    sizes = [max((c.buffers[k] for c in candidates.values() if k < len(c.buffers)), default=0) for k in range(most)]
    temporary = DeviceTensors([], sizes)
    addresses = [*tensors.addresses, *temporary.addresses]
    stream = cp.cuda.Stream(non_blocking=True)
    events: list[tuple[Any, Any]] = []
    eviction = Eviction(message["number"], message["cache_bytes"])
    cp.cuda.Device().synchronize()
    with turns.held():
        graphs = {i: c.captured(addresses, stream) for i, c in candidates.items()}
    order: list[int] = list(candidates)

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

    def sample(i: int, samples: int) -> list[float]:
        channel.beat(order[i], message["kernel_seconds"] * (samples + 1))
        return times_us(graphs[order[i]], samples)

    def warm_us(i: int) -> float:
        channel.beat(i, message["kernel_seconds"] * 2 * WARM_SAMPLES)
        return median(times_us(graphs[i], WARM_SAMPLES, cold=False))

    def problem(i: int) -> str:
        """What is wrong with one more run of a candidate, over poisoned outputs: it was right when it was checked."""
        with turns.held():
            channel.beat(i, message["kernel_seconds"])
            for k in range(len(case.graph.inputs), len(tensors.sizes)):
                tensors.fill(k, POISON[0])
            cp.cuda.Device().synchronize()
            graphs[i].launch(stream)
            stream.synchronize()
            channel.beat(i, message["seconds"])
            inputs = len(case.graph.inputs)
            places = [candidates[i].aliases.get(k, inputs + k) for k in range(len(case.graph.outputs))]
            outputs, trespass = [tensors.read(p) for p in places], tensors.trespass()
        return judge(case, 0, outputs).problem or trespass

    while order:
        with turns.held():
            timings = race(len(order), sample, seconds=message["timing_seconds"], seed=message["seed"], watch=watch)
            warm = {i: warm_us(i) for i, timing in zip(order, timings, strict=True) if not timing.note}
        finalists = [i for i, timing in zip(order, timings, strict=True) if timing.was_finalist]
        wrong = {i: found for i in finalists if (found := problem(i))}
        for i, found in wrong.items():
            channel.send(verdict_message(i, Verdict(f"right when checked, wrong when timed: {found}", None)))
        if wrong:
            order = [i for i in order if i not in wrong]
            continue
        return {
            str(i): {"samples_us": timing.samples_us, "note": timing.note, "warm_us": warm.get(i), "sets": 1}
            for i, timing in zip(order, timings, strict=True)
        }
    return {}


@contextmanager
def _device(message: dict[str, Any]) -> Generator[None]:
    """Works on device `number`. A fault of a kernel leaves the device's context unusable: the job fails, the parent
    ends this process, starts another and lets it run the probe (codegen/timer.py)."""
    cp = cupy()
    try:
        with cp.cuda.Device(message["number"]):
            cp.get_default_memory_pool().set_limit(fraction=MEMORY_SHARE)
            yield
    except cp.cuda.memory.OutOfMemoryError as e:
        raise JobFailure(Status.out_of_memory, str(e)) from e
    except (cp.cuda.runtime.CUDARuntimeError, cp.cuda.driver.CUDADriverError, TensorMapError) as e:
        raise JobFailure(Status.crashed, str(e)) from e


@lru_cache(maxsize=512)
def _module(file: str) -> Any:
    return cupy().RawModule(path=file)


def _call(file: str) -> cublaslt.Call:
    described = LibraryCall.model_validate_json(Path(file).read_bytes())
    return cublaslt.Call(described, cupy().cuda.Device().id)


@lru_cache(maxsize=2)
def _case(text: str, seed: int) -> Case:
    return make_case(parse_graph(text).graph, seed)


if __name__ == "__main__":
    serve({"detect": detect, "find": find, "ceilings": ceilings, "prepare": prepare, "bench": bench, "run": run})
