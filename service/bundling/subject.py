"""A stored plan with all that its bundle says of it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from codegen.hardware.libraries import CUBLASLT
from fusion_ir.core.named import NamedGraph
from fusion_ir.records import Plan, Ref, Step
from fusion_ir.text.printing import print_graph
from service.wording.naming import UNNAMED, Naming

GRAPH = "graph.fuseplan.txt"
SIGNATURE = "bundle.sig"
SOURCE_ENDINGS = {"cpu": "cpp"}
STEP_DIGITS = 2  # of a step's number in the name of its source


@dataclass(frozen=True)
class Subject:
    """A stored plan with its files. body: bytes of the plan, as they are stored. state: that of its answer. created:
    seconds since 1970. inputs, outputs: names. named: the graph, None where it is not stored any more. binaries,
    sources: by sha256; a source that is lost is not there. executor: sha256 and bytes of what runs a plan for a CPU."""

    key: str
    body: bytes
    plan: Plan
    state: str
    created: float
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    named: NamedGraph | None
    binaries: Mapping[str, bytes]
    sources: Mapping[str, str]
    executor: tuple[str, bytes] | None = None

    @property
    def naming(self) -> Naming:
        """The names, for tables."""
        naming = UNNAMED if self.named is None else Naming.of_graph(self.named)
        return replace(naming, inputs=self.inputs, outputs=self.outputs)

    @property
    def graph(self) -> str:
        """The graph's text with all names, "" where it is not stored any more."""
        return "" if self.named is None else print_graph(self.named)

    @property
    def made(self) -> str:
        """The time when it was stored, in UTC: "2026-11-26 20:14 UTC"."""
        return datetime.fromtimestamp(self.created, UTC).strftime("%Y-%m-%d %H:%M UTC")

    @property
    def source_files(self) -> dict[str, str]:
        """The name in the folder of each source, by sha256: that of the first step that has it."""
        found: dict[str, str] = {}
        for i, step in enumerate(self.plan.steps):
            if step.source in self.sources:
                ending = "json" if CUBLASLT in step.libraries else SOURCE_ENDINGS.get(self.plan.device.target, "cu")
                found.setdefault(step.source, f"sources/{i:0{STEP_DIGITS}}_{step.family}.{ending}")
        return found

    def name_of(self, ref: Ref) -> str:
        """The whole name of an input or output; the plan's own name of others: "tmp0"."""
        names = {"in": self.inputs, "out": self.outputs}.get(ref.place, ())
        return names[ref.index] if ref.index < len(names) else str(ref)


def did_run(plan: Plan) -> bool:
    """Whether the plan was run on a device of its class, whole or kernel by kernel."""
    return plan.time_us is not None and plan.device.origin == "detected" and bool(plan.steps)


def verified(plan: Plan, made: str) -> str:
    """Sentences on the checks of a plan before it was stored at the time `made`: what was checked on which device, and
    what was not."""
    device = plan.device
    if not plan.steps:
        return "The plan has no kernels: every output is an input as it is, so there was nothing to check."
    if not did_run(plan):
        return (
            f"Nobody ran this plan. It was compiled for {device.name} ({device.arch}) by {device.toolchain}, and its "
            "time is a prediction. No output of it was ever compared with anything: compare them before you rely on "
            "them."
        )
    driver = "" if device.target == "cpu" else f" with driver {device.driver or 'unknown'}"
    where = f"{device.name} ({device.arch}){driver}, compiled by {device.toolchain}"
    if plan.judged_by_steps:
        what = (
            "Each kernel gave what the interpreter gives for the tensors that it was given. The outputs as a whole say "
            "nothing: steps of this graph make any error larger"
        )
    elif plan.spread is None:
        what = "Each kernel by itself gave the interpreter's results, on random inputs. The plan was not run as a whole"
    else:
        error = "" if plan.max_rel_error is None else f"; the largest relative error was {plan.max_rel_error:.2g}"
        what = f"The plan's outputs were the interpreter's, on random inputs{error}"
    return f"{what}. It ran on {where}, for the last time before it was stored on {made}."


def libraries(steps: tuple[Step, ...]) -> tuple[str, ...]:
    """Libraries that the steps call, each once."""
    return tuple(dict.fromkeys(name for step in steps for name in step.libraries))
