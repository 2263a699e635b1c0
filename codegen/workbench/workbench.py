"""The workbench: compiles and checks kernels, times them against each other, runs plans; all in child processes."""

import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from types import TracebackType

from codegen.hardware.architectures import launched
from codegen.hardware.machine import usable_cpus
from codegen.kernel import Kernel
from codegen.sandbox.device_lock import segment_turn
from codegen.sandbox.limits import DEFAULT_LIMITS, Limits, check_work
from codegen.sandbox.object_cache import ObjectCache
from codegen.sandbox.slot import ChildLimits, Slot, SlotError
from codegen.sandbox.temporary_folders import temporary_folder
from codegen.timing.core_use import CoreUse
from codegen.timing.cpu_share import CpuShare
from codegen.timing.race_time import RaceTime
from codegen.toolchain.builder import Builder, Result
from codegen.toolchain.compiler import Binary, Compiler, Failure
from codegen.toolchain.cpu import find_compiler
from codegen.toolchain.cuda import CudaCompiler
from codegen.toolchain.emulator import emulator_compiler
from codegen.workbench.outcome import Outcome, measurement, not_worth_timing
from codegen.workbench.plan_files import check_inputs
from codegen.workbench.programs import kernel_program, plan_program
from codegen.workbench.step_check import Meanings, judge_steps
from codegen.workbench.timing_child import TimingChild
from codegen.workbench.timing_jobs import Array, RunError, TimingJobs
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device, Measurement, Plan, Status
from fusion_ir.reference.sample_inputs import samples

COMPILERS: Mapping[str, Callable[[Device, Limits], Compiler]] = {
    "cpu": find_compiler,
    "cuda": CudaCompiler,
    "emulator": emulator_compiler,
}
BENCHES = {
    "cpu": "codegen.child.cpu_bench",
    "cuda": "codegen.child.cuda_bench",
    "emulator": "codegen.child.emulator_bench",
}


LEAST_RACE_S = 0.5  # of plans, even where checking them took all the time there was
Check = tuple[str, int, str, str]  # that a kernel passed, with its error: segment, seed, binary, entry


@dataclass(frozen=True, slots=True)
class PlanTiming:
    """Status and times of a whole plan. Samples: microseconds of whole runs, in the order taken; samples of plans timed
    together belong together by position. They leave out the prologue, which took prologue_us when it ran. warm_us: of
    runs on one set of tensors again and again, None where the samples are of such runs themselves. disturbed: share of
    the race's visits during which others had the CPUs."""

    samples_us: tuple[float, ...]
    max_rel_error: float | None
    status: Status
    detail: str = ""
    prologue_us: float | None = None
    warm_us: float | None = None
    disturbed: float | None = None


class Workbench:
    """One device, one timing child, a few compile children. A context manager; safe to call from several threads,
    which then take turns.

    Raises CompilerMissing when made, DeviceError when it should run something for a GPU that is not there,
    DeviceQuarantined for a device that failed its probe, SlotError where children cannot work at all. A kernel's fault
    is never raised: it is a status. `compiler`: another than the one found for the device. jobs: compilers at a time,
    as many as there are CPUs by default.
    """

    def __init__(
        self,
        device: Device,
        cache: ObjectCache,
        limits: Limits = DEFAULT_LIMITS,
        *,
        compiler: Compiler | None = None,
        jobs: int | None = None,
    ) -> None:
        self.device, self.cache, self.limits = device, cache, limits
        self._compiler: Compiler = compiler or COMPILERS[device.target](device, limits)
        self._core_use = CoreUse(len(usable_cpus()))
        self._cpu_share = CpuShare()
        self._builder = Builder(self._compiler, cache, limits, jobs, self._core_use)
        memory = limits.memory_bytes or device.memory_bytes * 3 // 4
        # CUDA reserves address space beyond all bounds: its memory is limited through CuPy's pool instead.
        bounds = ChildLimits(memory if device.target != "cuda" else None, None, limits.output_bytes)
        self._timer = TimingChild(device, cache, Slot(BENCHES[device.target], bounds))
        self._jobs = TimingJobs(self._timer, self._compiler, self._builder, limits, self._core_use)
        self._lock = threading.Lock()
        self._pace = RaceTime(limits.timing_seconds, self._builder.jobs)
        self._checked: dict[Check, float | None] = {}
        self._expected: Sequence[Kernel] = ()
        self._helper = ThreadPoolExecutor(1, "get-ready")
        self._ready: Future[None] | None = None  # once it was begun

    def __enter__(self) -> "Workbench":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends all children."""
        self._helper.shutdown()
        self._timer.close()
        self._builder.close()

    def compile(self, kernels: Sequence[Kernel]) -> list[Binary | Measurement]:
        """A binary for each kernel, or the row that says why there is none (with an empty segment key)."""
        with self._lock, self._core_use.waiting():
            return self._binaries(kernels, self._built(kernels))

    def compile_for_plans(
        self,
        kernels: Sequence[Kernel],
        graph: Graph | None = None,
        *,
        seed: int = 0,
        together: bool = False,
        optional: bool = False,
        quickly: bool = False,
    ) -> list[Binary | Measurement]:
        """`compile` with a file for each kernel, so that plans carry nothing but their own kernels; together: all are
        of one plan, and may share files. graph: the graph that they will be measured on, with `seed`; the timing child
        prepares it meanwhile. optional: raises OutOfTime where no time is left to begin with one of them. quickly:
        spends less of a compiler's time, on kernels that may take longer to run."""
        with self._lock, self._core_use.waiting():
            alone = not together
            if optional:
                self._builder.admit(kernels, alone=alone)  # before the timing child gets ready, which takes a moment
            if graph is None:
                return self._binaries(kernels, self._built(kernels, alone, optional, quickly))
            made = self._compile_and_prepare(kernels, graph, seed, alone, optional, quickly)[0]
            return self._binaries(kernels, made)

    def _built(
        self,
        kernels: Sequence[Kernel],
        alone: bool = False,
        optional: bool = False,
        quickly: bool = False,
        late: bool = True,
    ) -> list[Result]:
        """Binaries and failures of the kernels, in order, from the builder, which then goes on with the kernels of
        `expect`. Compile reports of CUDA kernels are completed by their launches."""
        expected, self._expected = self._expected, ()
        results = self._builder.compile(
            kernels, alone=alone, optional=optional, quickly=quickly, late=late, then=expected
        )
        if self.device.target != "cuda":
            return results
        return [
            replace(r, report=launched(r.report, self.device.arch, k.launch))
            if isinstance(r, Binary) and r.report
            else r
            for k, r in zip(kernels, results, strict=True)
        ]

    def _binaries(self, kernels: Sequence[Kernel], results: Sequence[Result]) -> list[Binary | Measurement]:
        return [
            measurement(self.device, "", kernel, r, Outcome(r.status, r.detail)) if isinstance(r, Failure) else r
            for kernel, r in zip(kernels, results, strict=True)
        ]

    def allow(self, seconds: float) -> None:
        """Begins a search of `seconds`: from now on a file of kernels may compile for the rest of them, or for a few
        seconds, and the cores' work is counted."""
        self._builder.patience.until(seconds)
        self._core_use.restart()
        self._cpu_share.restart()
        self._ready = self._ready or self._helper.submit(self._get_ready)

    def _get_ready(self) -> None:
        """Starts the timing child, which takes a moment, while a search looks for what to time."""
        with suppress(SlotError), self._core_use.working():  # raised again where it is needed
            self._timer.slot.start()

    def idle_share(self, seconds: float) -> float:
        """Share of all core seconds, `seconds` since `allow` on every core, in which a core had nothing to do for the
        search. A core that the timing child may use while it times counts as busy."""
        return self._core_use.idle_share(seconds)

    def cpu_share(self) -> float | None:
        """Share of the time in which the thread that called `allow` wanted a CPU that it had one, since then; None
        where the system does not say."""
        return self._cpu_share.share()

    @property
    def waited_seconds(self) -> float:
        """Seconds spent waiting until other processes were through with the device."""
        return self._timer.waited_seconds

    @property
    def at_once(self) -> int:
        """Kernels whose first race takes no longer than that of one: they are compiled side by side."""
        return self._builder.jobs if self.device.target != "cpu" else 1

    def expect(self, kernels: Sequence[Kernel]) -> None:
        """Lets compilers turn to kernels that will be measured after those that are measured next, as soon as they are
        through with these. While kernels run on the same CPUs, compilers stand still."""
        self._expected = kernels

    def turn(self, segment_key: str) -> AbstractContextManager[None]:
        """Held while schedules of a segment are chosen, measured and recorded: no other process does so meanwhile."""
        return segment_turn(self.cache, self.device.class_key, segment_key)

    def measure(
        self,
        segment: Graph,
        segment_key: str,
        kernels: Sequence[Kernel],
        *,
        seed: int = 0,
    ) -> list[Measurement]:
        """Compiles, checks and times kernels that compute `segment`; a row for each, in order. Those whose compile
        report has a fault are dropped before that, where another of their family is timed instead.

        Each is run twice on poisoned outputs between guard pages and compared with the interpreter, the second time
        with small integers where the segment sums; once, however many races it is in. Those that pass race (see
        timing/protocol.py) on inputs that are not in cache.
        """
        race = secrets.token_hex(8)
        self._timer.admit()
        started, waited = time.monotonic(), self.waited_seconds
        with self._lock, self._core_use.waiting():
            cold = self._jobs.is_cold
            built, compiled, once = self._compile_and_prepare(kernels, segment, seed, late=False)
            outcomes = {i: Outcome(b.status, b.detail) for i, b in enumerate(built) if isinstance(b, Failure)}
            outcomes |= {i: Outcome(Status.dropped, fault) for i, fault in not_worth_timing(kernels, built).items()}
            programs = {
                i: kernel_program(kernel, binary.sha256, segment, self.cache)
                for i, (kernel, binary) in enumerate(zip(kernels, built, strict=True))
                if isinstance(binary, Binary) and i not in outcomes
            }
            checks = {
                i: (segment_key, seed, p["steps"][0]["binary"], p["steps"][0]["entry"]) for i, p in programs.items()
            }
            passed = {i: self._checked[check] for i, check in checks.items() if check in self._checked}
            outcomes.update(self._jobs.bench(segment, programs, self.limits.timing_seconds, seed, passed, screen=True))
            for i, check in checks.items():
                self._checked.pop(check, None)
                if outcomes[i].status is Status.ok:
                    self._checked[check] = outcomes[i].max_rel_error
            if kernels:
                taken = time.monotonic() - started - (self.waited_seconds - waited)
                seconds = max(taken - compiled, 0.0)
                work = check_work(segment)
                compiled = max(compiled, sum(b.seconds for b in built) / self._builder.jobs)  # of it some ahead
                self._pace.note(segment_key, len(kernels), compiled, seconds, once, work=work, cold=cold)
        return [
            measurement(self.device, segment_key, kernel, result, outcomes[i], race)
            for i, (kernel, result) in enumerate(zip(kernels, built, strict=True))
        ]

    def race_seconds(self, segment_key: str, count: int) -> float:
        """Predicted seconds of `measure` for `count` kernels, by the segment's races before; 0 where there were
        none."""
        return self._pace.seconds(segment_key, count)

    def first_race_seconds(self, segment: Graph, segment_keys: frozenset[str], count: int) -> float:
        """Predicted seconds of `measure` for a segment that was in no race: the upper quartile of such a race of the
        segments `segment_keys`, scaled by this segment's size where it is smaller."""
        return self._pace.first_seconds(segment_keys, count, check_work(segment))

    def measure_plans(self, graph: Graph, plans: Sequence[Plan], *, seed: int = 0, seconds: float) -> list[PlanTiming]:
        """Checks whole plans of `graph` and times them on the same inputs, in about `seconds` together, of which at
        least `LEAST_RACE_S` are left for timing. Raises MissingBinary."""
        least = min(seconds, LEAST_RACE_S)
        with self._lock, self._core_use.waiting():
            programs = {i: plan_program(plan, self.cache) for i, plan in enumerate(plans)}
            outcomes = self._jobs.bench(graph, programs, seconds, seed, least_seconds=least)
        return [_plan_timing(outcomes[i]) for i in range(len(plans))]

    def measure_by_steps(
        self, graph: Graph, plan: Plan, meanings: Meanings, *, seed: int = 0, seconds: float
    ) -> PlanTiming:
        """Judges a plan of `graph` by its steps, one by one (`codegen.workbench.step_check`), since its outputs say
        nothing, and times it for about `seconds`. Each run has to give the bits of the outputs judged right. Raises
        MissingBinary."""
        with temporary_folder() as folder:
            proven: list[list[str]] = []
            for inputs in samples(graph, seed):
                try:
                    problem, outputs = judge_steps(plan, meanings, inputs, self.run)
                except RunError as e:
                    return PlanTiming((), None, Status.crashed, str(e))
                if problem:
                    return PlanTiming((), None, Status.wrong_result, problem)
                files = [f"{folder}/{len(proven)}-{i}" for i in range(len(outputs))]
                for array, file in zip(outputs, files, strict=True):
                    array.tofile(file)
                proven.append(files)
            with self._lock, self._core_use.waiting():
                outcomes = self._jobs.bench(graph, {0: plan_program(plan, self.cache)}, seconds, seed, proven=proven)
        return _plan_timing(outcomes[0])

    def run(self, plan: Plan, inputs: Sequence[Array], *, versions: Mapping[int, str] = {}) -> list[Array]:
        """Runs a plan. Inputs of the plan's shapes and dtypes, any strides; outputs dense, row-major. Raises
        ValueError for inputs that do not fit, MissingBinary, RunError.

        Its prologue runs at the first call, and when a constant that it reads is another than at the call before: by
        its version (`versions`, by position), and by its content where the caller names none."""
        check_inputs(plan, inputs)
        with self._lock:
            return self._jobs.run(plan, inputs, versions)

    def _compile_and_prepare(
        self,
        kernels: Sequence[Kernel],
        graph: Graph,
        seed: int,
        alone: bool = False,
        optional: bool = False,
        quickly: bool = False,
        late: bool = True,
    ) -> tuple[list[Result], float, float]:
        """Compiles while the timing child samples inputs and interprets the graph, which it does but once. The results
        of the builder, the seconds of compiling, and the seconds that the timing child needed beyond those."""
        started = time.monotonic()
        with ThreadPoolExecutor(1, "compile") as other:
            compiling = other.submit(lambda: (self._built(kernels, alone, optional, quickly, late), time.monotonic()))
            self._jobs.prepare(graph, seed)
            ready = time.monotonic()
            built, compiled = compiling.result()
        return built, compiled - started, max(ready - compiled, 0.0)


def _plan_timing(o: Outcome) -> PlanTiming:
    disturbed = o.surroundings.disturbed if o.surroundings else None
    return PlanTiming(o.samples_us, o.max_rel_error, o.status, o.detail, o.prologue_us, o.warm_us, disturbed)
