"""Jobs of the timing child: checking and timing programs, and running plans, whatever becomes of the child."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from codegen.devices.detection import no_cuda
from codegen.hardware.machine import usable_cpus
from codegen.launch.emulator import emulator_library
from codegen.sandbox.limits import Limits, allowance_seconds, check_seconds, kernel_seconds
from codegen.sandbox.slot import SlotFailure, once_more
from codegen.sandbox.temporary_folders import temporary_folder
from codegen.timing.core_use import CoreUse
from codegen.toolchain.builder import Builder
from codegen.toolchain.compiler import Compiler
from codegen.toolchain.cpu import CpuCompiler
from codegen.toolchain.emulator import EmulatorCompiler
from codegen.toolchain.runtime import runtime_library
from codegen.workbench.outcome import Outcome, timed
from codegen.workbench.plan_files import constant_version, read_tensor, tensor_file
from codegen.workbench.probe import probe_binary, probe_job
from codegen.workbench.programs import Program, plan_program
from codegen.workbench.timing_child import TimingChild
from fusion_ir.core.graph import Graph
from fusion_ir.records import Plan, Status, Surroundings
from fusion_ir.text.printing import print_graph

Array = np.ndarray[Any, Any]


class RunError(RuntimeError):
    """A plan that ended badly: crash, hang or out of memory."""


class TimingJobs:
    """The jobs of a workbench for its timing child, one at a time. builder: its compilers, which stand still while
    kernels are timed on the same CPUs."""

    def __init__(
        self, child: TimingChild, compiler: Compiler, builder: Builder, limits: Limits, core_use: CoreUse
    ) -> None:
        self.child, self.limits = child, limits
        self.device, self.cache = child.device, child.cache
        self._compiler, self._builder, self._core_use = compiler, builder, core_use
        self._setup: dict[str, Any] | None = None

    def prepare(self, graph: Graph, seed: int) -> None:
        """Lets the timing child sample inputs of a graph and interpret it, which it does but once. A failure comes
        again when kernels run, whatever it is, and counts against them."""
        self.common()
        request = {
            "job": "prepare",
            "graph": print_graph(graph),
            "seed": seed,
            "cache_bytes": self._cold_bytes(self.limits.timing_seconds),
        }
        with self._core_use.working_by(self.child.slot.cpu_seconds), suppress(SlotFailure):
            self.child.call(
                request,
                seconds=check_seconds(graph),
                total_seconds=self.limits.job_seconds,
                beside_others=self.device.target != "cpu",  # whose cores it would take from what is timed
            )

    @property
    def is_cold(self) -> bool:
        """Whether the timing child had no job yet."""
        return self._setup is None

    def bench(
        self,
        graph: Graph,
        programs: Mapping[int, Program],
        seconds: float,
        seed: int,
        checked: Mapping[int, float | None] = {},
        screen: bool = False,
        least_seconds: float | None = None,
        proven: Sequence[Sequence[str]] = (),
    ) -> dict[int, Outcome]:
        """Runs the timing child until every program has an outcome: a program that kills the child is left out, and the
        rest go on. Where nothing shows which program did it, all suspects have a second chance. checked: programs that
        were found right before, with their errors. least_seconds: of the race, where `seconds` include the checks
        before it. proven: see `codegen.child.case.make_case`."""
        outcomes: dict[int, Outcome] = {}
        suspects: set[int] = set()
        passed = dict(checked)
        least = seconds if least_seconds is None else least_seconds
        takes_turns = self.device.target == "cuda"  # whose results are judged by CPUs that time nothing
        prepare, kernel = check_seconds(graph), kernel_seconds(graph, self.limits.kernel_seconds)
        while pending := [i for i in programs if i not in outcomes]:

            def told(event: dict[str, Any], pending: list[int] = pending) -> None:
                if "times" in event:
                    work.close()
                    work.enter_context(self._at_work(event["times"]))
                    return
                i = pending[int(event["checked"])]
                if event["status"] == Status.ok.value:
                    passed[i] = event["max_rel_error"]
                else:
                    outcomes[i] = Outcome(Status(event["status"]), event["detail"], (), event["max_rel_error"])

            request = {
                "job": "bench",
                "graph": print_graph(graph),
                "seed": seed,
                "programs": [programs[i] for i in pending],
                "passed": [k for k, i in enumerate(pending) if i in passed],
                "timing_seconds": seconds,
                "least_seconds": least,
                "screen": screen,
                "proven": proven,
                "kernel_seconds": kernel,
                "cache_bytes": self._cold_bytes(seconds),
                **self.common(),
                "turn": self.child.turn if takes_turns else None,
            }
            try:
                with ExitStack() as work:
                    work.enter_context(self._at_work(times=False))
                    answer = self.child.call(
                        request,
                        seconds=prepare,
                        total_seconds=self.limits.job_seconds,
                        on_event=told,
                        beside_others=takes_turns,
                    )
                self.child.waited_seconds += answer.get("waited_seconds", 0.0)
            except SlotFailure as e:
                culprits = (
                    [pending[e.index]] if 0 <= e.index < len(pending) else [i for i in pending if i not in outcomes]
                )
                doubtful = e.was_killed or not 0 <= e.index < len(pending)
                outcomes.update({i: Outcome(e.status, e.detail) for i in culprits if i in suspects or not doubtful})
                suspects.update(culprits)
                continue
            surroundings = self._surroundings(answer["surroundings"])
            for k, timing in answer["timings"].items():
                i = pending[int(k)]
                outcomes[i] = timed(timing, passed[i], surroundings)
        return outcomes

    def run(self, plan: Plan, inputs: Sequence[Array], versions: Mapping[int, str]) -> list[Array]:
        """See `Workbench.run`."""
        with temporary_folder() as folder:
            for i, array in enumerate(inputs):
                np.ascontiguousarray(array).tofile(f"{folder}/in{i}")
            operations = sum(step.operations for step in plan.steps)
            bytes_ = sum(step.bytes for step in plan.steps)
            request = {
                "job": "run",
                "program": plan_program(plan, self.cache),
                "inputs": [tensor_file(spec, f"{folder}/in{i}") for i, spec in enumerate(plan.inputs)],
                "outputs": [tensor_file(spec, f"{folder}/out{i}") for i, spec in enumerate(plan.outputs)],
                "kernel_seconds": allowance_seconds(self.limits.kernel_seconds, bytes_, operations),
                "plan": plan.plan_key,
                "versions": {str(i): constant_version(inputs[i], versions.get(i)) for i in plan.constants},
                **self.common(),
            }
            try:
                most = self.limits.job_seconds
                once_more(lambda: self.child.call(request, seconds=60.0 + bytes_ / 1e8, total_seconds=most))
            except SlotFailure as e:
                raise RunError(str(e)) from e
            return [read_tensor(spec, Path(folder, f"out{i}")) for i, spec in enumerate(plan.outputs)]

    @contextmanager
    def _at_work(self, times: bool) -> Generator[None]:
        """For the block, the timing child is at work. times: it times kernels, and all cores count as busy; on a CPU
        the compilers stand still meanwhile."""
        with ExitStack() as work:
            if not times:
                work.enter_context(self._core_use.working_by(self.child.slot.cpu_seconds))
            else:
                if self.device.target == "cpu":
                    work.enter_context(self._builder.paused())
                work.enter_context(self._core_use.working(self._core_use.cores))
            yield

    def _cold_bytes(self, seconds: float) -> int:
        """Bytes of cache that must hold none of a kernel's tensors when it is timed; 0 where `seconds` is 0."""
        return self.device.cache_bytes if seconds else 0

    def common(self) -> dict[str, Any]:
        """Fields that every job of the timing child needs. The first call makes them, and the probe's job."""
        if self._setup is None:
            if isinstance(self._compiler, CpuCompiler):
                cpus = usable_cpus()[: self.device.units]
                with self._compiler.slot() as slot:
                    library = runtime_library("pool", self._compiler, slot, self.cache)
                self._setup = {"pool": str(library), "cpus": cpus, "cpu_seconds": self.limits.job_seconds * len(cpus)}
            elif isinstance(self._compiler, EmulatorCompiler):
                self._setup = {"runtime": str(emulator_library(self._compiler.compiler, self.cache))}
            else:
                answer = self.child.call(
                    {"job": "find", "name": self.device.name, "arch": self.device.arch}, seconds=60.0
                )
                if "problem" in answer:
                    raise no_cuda(answer)
                self._setup = {"number": answer["number"]}
            binary = probe_binary(self.device, self._compiler, self.cache, self.limits.compile_seconds)
            self.child.probe_job = probe_job(self.device, binary, self._setup)
        return self._setup

    def _surroundings(self, seen: Mapping[str, Any] | None) -> Surroundings | None:
        """Surroundings that the child saw, with the device's ceilings; None where it saw none."""
        if seen is None:
            return None
        return Surroundings.model_validate(seen).model_copy(update={"ceilings": self.device.ceilings})
