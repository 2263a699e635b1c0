"""Child process that runs kernels on the CPU: checks and times candidates, runs plans."""

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from codegen.child import bench_protocol
from codegen.child.bench_protocol import Unloadable, race_until_right, read_program
from codegen.child.case import Array, Case, Proven, Verdict, judge, make_case, proven_of
from codegen.child.cpu_memory import (
    POISON,
    Arena,
    CheckMemory,
    KeptTensors,
    TimingMemory,
    temporaries,
    tensor_layout,
)
from codegen.child.late_checks import Runs, review
from codegen.child.prologue_cache import PrologueCache
from codegen.child.serve import Channel, expect_no_processes, limit_cpu, race_seconds, serve
from codegen.launch.cpu import HUGE_PAGE, BoundSteps, CpuStep, GuardedTensor, PageMemory, Pool, bind_steps, load_entry
from codegen.timing.protocol import Timing, median, race
from fusion_ir.accuracy.tolerance import Order
from fusion_ir.status import Status
from fusion_ir.text.printing import parse_graph

if TYPE_CHECKING:
    from codegen.timing.surroundings import CpuWatch

WARM_SAMPLES = 5
PROLOGUE_SAMPLES = 3  # of what decides nothing
MOST_CASES = 3
MOST_KEPT_BYTES = 128 << 20  # of inputs and outputs, of which a case holds some copies


@dataclass(frozen=True, slots=True)
class CpuCandidate:
    """A kernel or a plan: steps over a table of inputs, outputs and temporaries. prologue: steps that run once, before
    the first run, and write the temporaries `kept`. aliases: pairs (i, j): output i is entry j of the table."""

    prologue: tuple[CpuStep, ...]
    steps: tuple[CpuStep, ...]
    buffers: tuple[int, ...]
    kept: tuple[int, ...]
    aliases: tuple[tuple[int, int], ...]
    order: Order = "own"  # see `judge`

    @property
    def temporaries(self) -> tuple[int, ...]:
        """Bytes of each temporary; 0 for the kept ones, which have memory of their own while the plan is timed."""
        return tuple(0 if k in self.kept else size for k, size in enumerate(self.buffers))


class CpuCase:
    """A case with the memory that its candidates share."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.buffers: list[PageMemory] = []  # for the temporaries of plans
        self._checks: dict[tuple[int, bool], CheckMemory] = {}
        self._guards: dict[tuple[int, int, bool], GuardedTensor] = {}
        self._timing: TimingMemory | None = None
        self._cold_bytes = 0

    @property
    def runs(self) -> list[tuple[int, bool]]:
        """(input set, guard page behind rather than before) of the runs that check a candidate: both placements."""
        return [(0, True), (len(self.case.input_sets) - 1, False)]

    def check_memory(self, run: tuple[int, bool]) -> CheckMemory:
        """The memory of one checking run, made at its first call."""
        if run not in self._checks:
            self._checks[run] = CheckMemory(self.case, *run, self._guards)
        return self._checks[run]

    def timing_memory(self, cache_bytes: int) -> TimingMemory:
        """The memory of timed runs, made at the first call, and again for another size of the cache or where another
        case took the arena since."""
        if self._timing is None or self._cold_bytes != cache_bytes:
            for other in (self, *_cases.values()):
                other.forget_timing()
            self._timing, self._cold_bytes = TimingMemory(self.case, cache_bytes, _arena), cache_bytes
        return self._timing

    def forget_timing(self) -> None:
        """Lets go of what `timing_memory` made."""
        self._timing = None


_cases: OrderedDict[tuple[str, int, Proven], CpuCase] = OrderedDict()
_kept = PrologueCache()
_arena = Arena()


def prepare(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Does what `bench` needs for the first programs of a graph: samples inputs, interprets it, fills memory."""
    prepared = _prepare(message["graph"], message["seed"])
    for which in prepared.runs:
        prepared.check_memory(which)
    prepared.timing_memory(message["cache_bytes"])
    return {}


def bench(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Checks and times `programs` on samples of `graph`, as `codegen.child.bench_protocol` says. `screen`: the runs of
    the checks count as first runs of the race. `proven`: see `make_case`."""
    return bench_protocol.bench(CpuBench(message, channel), message, channel)


class CpuBench:
    """The CPU, as `BenchDevice` says."""

    def __init__(self, message: dict[str, Any], channel: Channel) -> None:
        self._began = time.monotonic()
        limit_cpu(message["cpu_seconds"])
        self._message, self._channel = message, channel
        self._prepared = _prepare(message["graph"], message["seed"], proven_of(message))
        self._pool = _pool(message["pool"], tuple(message["cpus"]))
        self._before_us: dict[int, list[float]] = {}

    def load(self, text: Mapping[str, Any]) -> CpuCandidate:
        graph = self._prepared.case.graph
        try:
            return _candidate(text, len(graph.inputs), len(graph.outputs))
        except OSError as e:
            raise Unloadable(Status.compile_failed, str(e)) from e

    def check(self, index: int, candidate: CpuCandidate) -> Verdict:
        verdict, self._before_us[index] = _check(
            self._prepared, candidate, self._pool, self._channel, index, self._message
        )
        return verdict

    def time(self, candidates: dict[int, CpuCandidate]) -> dict[str, Any]:
        message, channel = self._message, self._channel
        runs = self._before_us if message["screen"] else {}
        from codegen.timing.surroundings import CpuWatch  # noqa: PLC0415  with records, which take long to import

        watch, timings = CpuWatch(message["cpus"]), dict[str, Any]()
        if candidates:
            timings = _time(self._prepared, candidates, runs, self._pool, channel, message, watch, self._began)
        return {"timings": timings, "surroundings": watch.seen and watch.seen.model_dump(mode="json")}


def run(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Runs `program` once on tensors in files (dense, row-major). Writes the outputs to files of the same form. Its
    prologue runs only where it did not run before in this process for the same `plan` and `versions` of constants."""
    limit_cpu(message["cpu_seconds"])
    pool = _pool(message["pool"], tuple(message["cpus"]))
    tensors = [*message["inputs"], *message["outputs"]]
    candidate = _candidate(message["program"], len(message["inputs"]), len(message["outputs"]))
    table = [tensor_layout(t, 64) for t in tensors]
    memory = [_small(t.bytes) if t.bytes < HUGE_PAGE else PageMemory(t.bytes) for t in table] + temporaries(
        candidate.buffers, POISON[0]
    )
    plan, versions = message["plan"], message["versions"]
    left: list[PageMemory] | None = _kept.find(plan, versions) if candidate.prologue else []
    for k, place in zip(candidate.kept, left or (), strict=False):
        memory[len(table) + k] = place
    for tensor, layout, place in zip(message["inputs"], table, memory, strict=False):
        if layout.span:
            layout.view(place.bytes)[...] = np.fromfile(tensor["file"], layout.dtype.numpy).reshape(layout.sizes)
    addresses = np.array([[place.address for place in memory]], np.uint64)
    channel.beat(0, message["kernel_seconds"])
    if left is None:
        pool.run(bind_steps(candidate.prologue, addresses))
        _kept.keep(plan, versions, [memory[len(table) + k] for k in candidate.kept])
    pool.run(bind_steps(candidate.steps, addresses))
    channel.beat(-1, message["seconds"])
    values = [layout.view(place.bytes) for layout, place in zip(table, memory, strict=False)]
    for i, j in candidate.aliases:
        values[len(message["inputs"]) + i] = values[j]
    for tensor, value in zip(message["outputs"], values[len(message["inputs"]) :], strict=True):
        np.ascontiguousarray(value).tofile(tensor["file"])
    return {}


def _small(size: int) -> PageMemory:
    """Memory of a tensor whose use is not timed, without huge pages: hundreds of tensors would touch hundreds."""
    return PageMemory(size, huge=False, aligned=False)


def _check(
    prepared: CpuCase, candidate: CpuCandidate, pool: Pool, channel: Channel, index: int, message: dict[str, Any]
) -> tuple[Verdict, list[float]]:
    """The verdict, and the microseconds of each run without its prologue. A candidate with a prologue runs a second
    time, on the temporaries that the prologue left."""
    errors, runs_us = [0.0], list[float]()
    for which in prepared.runs:
        channel.beat(index, message["seconds"])
        memory = prepared.check_memory(which)
        buffers = temporaries(candidate.buffers, memory.poison, prepared.buffers)
        addresses = np.array([[*memory.addresses, *(b.address for b in buffers)]], np.uint64)
        runnable = bind_steps(candidate.steps, addresses)
        if candidate.prologue:
            channel.beat(index, message["kernel_seconds"])
            pool.run(bind_steps(candidate.prologue, addresses))
        for again in range(2 if candidate.prologue else 1):
            memory.poison_outputs()
            for k in set(range(len(buffers))).difference(candidate.kept) if again else ():
                buffers[k].bytes[: candidate.buffers[k]] = memory.poison
            with channel.timing() if message["screen"] else nullcontext():
                channel.beat(index, message["kernel_seconds"])
                start = time.perf_counter()
                pool.run(runnable)
                runs_us.append(1e6 * (time.perf_counter() - start))
            expect_no_processes()
            channel.beat(index, message["seconds"])
            verdict = judge(prepared.case, which[0], _results(memory, candidate), candidate.order)
            problem = verdict.problem or memory.trespass()
            if problem:
                found = f"{problem} (at the second run, which the prologue was not part of)" if again else problem
                return Verdict(found, verdict.max_rel_error), runs_us
            if verdict.max_rel_error is not None:
                errors.append(verdict.max_rel_error)
    return Verdict("", max(errors)), runs_us


def _results(memory: CheckMemory, candidate: CpuCandidate) -> list[Array]:
    count = len(memory.inputs)
    values = [memory.input(i) for i in range(count)] + [memory.result(i) for i in range(len(memory.outputs))]
    for i, j in candidate.aliases:
        values[count + i] = values[j]
    return values[count:]


def _time(
    prepared: CpuCase,
    candidates: dict[int, CpuCandidate],
    before_us: dict[int, list[float]],
    pool: Pool,
    channel: Channel,
    message: dict[str, Any],
    watch: "CpuWatch",
    began: float,
) -> dict[str, Any]:
    """A timing for each candidate whose timed runs gave right results (`race_until_right`)."""
    channel.beat(-1, message["seconds"])
    memory = prepared.timing_memory(message["cache_bytes"])
    sizes = [max(column) for column in zip_longest(*(c.temporaries for c in candidates.values()), fillvalue=0)]
    # Shared by all candidates, as the runner of a plan keeps its buffers between calls.
    held = temporaries(sizes, 0, prepared.buffers)
    buffers = np.array([b.address for b in held], np.uint64)
    tensors = np.hstack([memory.addresses, np.broadcast_to(buffers, (memory.sets, len(buffers)))])
    kept = {
        i: KeptTensors(tensors, memory.addresses.shape[1], c.buffers, c.kept, message["cache_bytes"])
        for i, c in candidates.items()
        if c.prologue
    }
    tables = {i: kept[i].addresses if i in kept else tensors for i in candidates}
    prologues_us = dict[int, float]()
    for i in kept:
        with channel.timing():
            note = channel.beats(i, message["kernel_seconds"])
            ahead = bind_steps(candidates[i].prologue, tables[i][:1])
            prologues_us[i] = median(pool.time_us(ahead, PROLOGUE_SAMPLES, 0, note))
        kept[i].repeat()
    runnable = {i: bind_steps(c.steps, tables[i]) for i, c in candidates.items()}
    single = {i: bind_steps(c.steps, tables[i][:1]) for i, c in candidates.items()}
    aliases = {i: dict(c.aliases) for i, c in candidates.items()}
    runs = Runs(memory, prepared.case.graph.written_bytes, len(candidates))
    position = 0

    def visit(i: int, samples: int) -> Sequence[float]:
        nonlocal position
        first, position = position, position + samples
        runs.note(i, first, samples)
        note = channel.beats(i, message["kernel_seconds"])
        times = pool.time_us(runnable[i], samples, first, note)
        expect_no_processes()
        runs.look(i, first, samples, aliases[i])
        return times

    def once(i: int) -> None:
        channel.beat(i, message["kernel_seconds"])
        pool.run(single[i])
        expect_no_processes()

    def raced(order: list[int]) -> list[Timing]:
        with channel.timing():
            return race(
                len(order),
                lambda k, samples: watch.disturbance.take(lambda: visit(order[k], samples)),
                seconds=race_seconds(message, began),
                seed=message["seed"],
                before_us=[before_us.get(i, []) for i in order],
                watch=watch,
            )

    def reviewed(finalists: list[int]) -> dict[int, Verdict]:
        of_finalists = {i: aliases[i] for i in finalists}
        orders: dict[int, Order] = {i: candidates[i].order for i in finalists}
        return review(
            prepared.case, memory, runs, of_finalists, orders, once, lambda i: channel.beat(i, message["seconds"])
        )

    timings = race_until_right(list(candidates), raced, reviewed, channel)
    if not timings:
        return {}
    with channel.timing():
        return {
            str(i): _timing(i, t, memory, single[i], pool, channel, message) | {"prologue_us": prologues_us.get(i)}
            for i, t in timings.items()
        }


def _timing(
    index: int,
    timing: Timing,
    memory: TimingMemory,
    one: BoundSteps,
    pool: Pool,
    channel: Channel,
    message: dict[str, Any],
) -> dict[str, Any]:
    """The timing of one candidate as the parent gets it; `warm_us`: a finalist's median time with tensors in cache."""
    warm = None
    if not timing.note and memory.sets > 1:
        note = channel.beats(index, message["kernel_seconds"])
        warm = median(pool.time_us(one, WARM_SAMPLES + 1, 0, note)[1:])
    return {"samples_us": timing.samples_us, "note": timing.note, "warm_us": warm, "sets": memory.sets}


def _prepare(text: str, seed: int, proven: Proven = ()) -> CpuCase:
    key = text, seed, proven
    if key not in _cases:
        while len(_cases) >= MOST_CASES:
            del _cases[_least_wanted()]
        _cases[key] = CpuCase(make_case(parse_graph(text).graph, seed, proven))
    _cases.move_to_end(key)
    return _cases[key]


def _least_wanted() -> tuple[str, int, Proven]:
    """The case that was not used for longest, but for the one of the longest graph: that is the whole one, which a
    search begins and ends with, and whose error bounds take seconds. Large ones do not stay."""
    longest = max(_cases, key=lambda key: len(key[0]))
    stays = _cases[longest].case.bytes <= MOST_KEPT_BYTES
    return next(key for key in _cases if key != longest or not stays)


@lru_cache(maxsize=1)
def _pool(library: str, cpus: tuple[int, ...]) -> Pool:
    return Pool(Path(library), cpus)


@lru_cache(maxsize=4096)
def _entry(binary: str, entry: str, libraries: tuple[str, ...]) -> int:
    return load_entry(binary, entry, libraries)


def _candidate(text: Mapping[str, Any], inputs: int, outputs: int) -> CpuCandidate:
    """Reads one program of a message, whose steps are {"binary", "entry", "libraries", "tasks", "args"}. OSError if a
    binary cannot be loaded."""
    read = read_program(text, inputs, outputs)
    steps = [
        CpuStep(_entry(step["binary"], step["entry"], tuple(step["libraries"])), tuple(places), step["tasks"])
        for step, places in read.steps
    ]
    prologue, rest = tuple(steps[: read.once]), tuple(steps[read.once :])
    return CpuCandidate(prologue, rest, read.buffers, read.kept, tuple(read.aliases.items()), read.order)


if __name__ == "__main__":
    serve({"prepare": prepare, "bench": bench, "run": run})
