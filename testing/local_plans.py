"""Plans for the back end of PyTorch without a server: made in this process by predictions, as soon as they are asked
for."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuseplan_client.cpu.executor import Executor, process_executor
from fuseplan_client.server.answers import Answer, TensorNames
from fuseplan_client.torch.asking import Question, Refusal

from codegen.devices.detection import detect
from codegen.sandbox.object_cache import ObjectCache
from codegen.workbench.workbench import Workbench
from fusion_ir.formats.json.wire import from_wire
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.records import Plan
from scheduler.budget import Budget
from scheduler.interfaces import Forgetful
from scheduler.tune import tune
from service.planning.executor import executor


@dataclass
class LocalPlans:
    """Answers questions at once. changed: what becomes of a plan's binaries on the way. questions: those that came."""

    bench: Workbench
    executor: Executor
    changed: Callable[[bytes], bytes] = lambda data: data
    questions: list[Question] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)

    @staticmethod
    def made(folder: Path, target: str = "cpu") -> "LocalPlans":
        """With a cache in this folder. Plans of the emulator are given away as plans for CUDA devices."""
        cache = ObjectCache(folder)
        return LocalPlans.on(Workbench(detect(target, cache, ceilings=False), cache))

    @staticmethod
    def on(bench: Workbench) -> "LocalPlans":
        """For the device of a workbench."""
        found = process_executor(*executor(bench.cache))
        found.use_openmp()
        return LocalPlans(bench, found)

    def ask(self, question: Question) -> None:
        """Answers a question."""
        self.questions.append(question)
        try:
            named = from_wire(dict(question.requests()[0]["graph"]))
            plan = tune(named.graph, self.bench.device, Budget(0.0), Forgetful(), self.bench)
        except Exception as error:
            self.failures.append(f"{type(error).__name__}: {error}")
            question.failed(self.failures[-1])
            question.ended()
            return
        self.plans.append(plan)
        binaries: dict[str, bytes] = {}
        for step in plan.steps:
            path = self.bench.cache.path(step.binary)
            assert path is not None
            binaries[step.binary] = self.changed(path.read_bytes())
        body = plan.model_dump(mode="json")
        body["device"]["target"] = body["device"]["target"].replace("emulator", "cuda")
        answer: Any = Answer(
            body,
            b"",
            plan.plan_key,
            graph_key(named.graph),
            plan.device.class_key,
            "measured",
            "miss",
            TensorNames(named.input_names, named.output_names),
        )
        try:
            question.ready(answer, binaries, self.executor)
        except Exception as error:
            self.failures.append(f"{type(error).__name__}: {error}")
            question.failed(self.failures[-1])
        question.ended()

    def refuse(self, refusal: Refusal) -> None:
        """Notes a refusal."""
        self.refusals.append(refusal)

    def wait(self, seconds: float) -> bool:
        """Every question has its answer."""
        return True

    def close(self) -> None:
        """Ends the workbench."""
        self.bench.close()
