"""Plans of a shorter and of a longer search of a model's graphs, timed in turns.

python -m benchmarks.models.longer [--models llama.eval] [--dtypes f32] [--seconds 60,600]

Each search begins with nothing: no measurements, no compiled kernels. Writes results/models_longer.md.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from fuseplan_client.torch.backend import Backend

from benchmarks.machine import RESULTS, machine
from benchmarks.models.zoo import make
from codegen.devices.detection import detect
from codegen.sandbox.object_cache import ObjectCache
from codegen.timing.protocol import ratio_interval
from codegen.workbench.workbench import Workbench
from fusion_ir.core.graph import Graph
from fusion_ir.formats.json.wire import from_wire
from fusion_ir.records import Plan
from scheduler.budget import Budget
from scheduler.interfaces import Forgetful
from scheduler.tune import tune

RACE_SECONDS = 30.0


@dataclass
class Asked:
    """An asker whom nobody answers, and what it was asked for: graphs, and the target."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    def ask(self, question: Any) -> None:
        """Notes the graph of a question."""
        self.rows.append(dict(question.requests()[0]))

    def refuse(self, refusal: Any) -> None:
        """There is no plan to be refused."""

    def wait(self, seconds: float) -> bool:
        """Everything was asked."""
        return True


@dataclass(frozen=True)
class Longer:
    """A graph's plans by the shorter and the longer search: seconds that these took, what was timed, kernels of the
    plans. over: the time of the shorter one's plan over the longer one's, with a 99 % interval."""

    label: str
    ops: int
    seconds: tuple[float, float]
    measured: tuple[int, int]
    kernels: tuple[int, int]
    us: tuple[float, float]
    over: tuple[float, float, float]


def main() -> int:
    """Searches each graph twice and writes results/models_longer.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="llama.eval")
    parser.add_argument("--dtypes", default="f32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", default="60,600")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    short, long = map(float, options.seconds.split(","))
    found: list[Longer] = []
    for model in options.models.split(","):
        for dtype in options.dtypes.split(","):
            for number, row in enumerate(graphs_of(model, dtype)):
                graph = from_wire(row["graph"]).graph
                label = f"{model}, {dtype}, graph {number + 1}"
                found.append(compared(label, graph, row["target"], (short, long)))
                print(_line(found[-1]), flush=True)
                (RESULTS / "models_longer.md").write_text(report(found, (short, long)))
    return 0


def graphs_of(model: str, dtype: str) -> Sequence[dict[str, Any]]:
    """Graphs that the back end asks plans for, of a model at its smaller size."""
    made, asked = make(model, 0, dtype), Asked()
    made.step(torch.compile(made.compiled, backend=Backend(asker=asked), dynamic=False))
    return asked.rows


def compared(label: str, graph: Graph, target: str, seconds: tuple[float, float]) -> Longer:
    """Both searches of a graph, and a race of their plans."""
    with tempfile.TemporaryDirectory(prefix="fuseplan-longer-") as folder:
        device = detect(target, ObjectCache(f"{folder}/device"))
        plans, took = list[Plan](), list[float]()
        both = ObjectCache(f"{folder}/both")
        for budget in seconds:
            cache = ObjectCache(f"{folder}/{budget:g}")
            started = time.monotonic()
            with Workbench(device, cache) as bench:
                plans.append(tune(graph, device, Budget(budget), Forgetful(), bench))
            took.append(time.monotonic() - started)
            for step in plans[-1].steps:
                binary = cache.get(step.binary)
                assert binary is not None, step.binary
                both.put(binary)
        with Workbench(device, both) as bench:
            one, other = bench.measure_plans(graph, plans, seconds=RACE_SECONDS)
    assert one.samples_us and other.samples_us, (one.detail, other.detail)
    return Longer(
        label,
        len(graph.nodes),
        (took[0], took[1]),
        (plans[0].search.measured, plans[1].search.measured),
        (len(plans[0].steps), len(plans[1].steps)),
        (median(one.samples_us), median(other.samples_us)),
        ratio_interval(one.samples_us, other.samples_us),
    )


def report(found: Sequence[Longer], seconds: tuple[float, float]) -> str:
    """The page."""
    about = machine()
    lines = [
        "# What a longer search finds",
        "",
        f"{about['device']}; PyTorch {torch.__version__}; {about['commit']}.",
        f"Each graph is searched for {seconds[0]:g} s and for {seconds[1]:g} s, each time from nothing; then the two",
        "plans run in turns. A search ends before its time where nothing is left to try.",
        "`python -m benchmarks.models.longer`",
        "",
        "| graph | ops | took, s | kernels timed | kernels of the plan | us | the first over the second | 99 % |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    return "\n".join([*lines, *map(_line, found)]) + "\n"


def _line(row: Longer) -> str:
    pairs = [
        f"{row.seconds[0]:.0f}; {row.seconds[1]:.0f}",
        "; ".join(map(str, row.measured)),
        "; ".join(map(str, row.kernels)),
        f"{row.us[0]:.0f}; {row.us[1]:.0f}",
    ]
    ratio, low, high = row.over
    cells = [row.label, str(row.ops), *pairs, f"{ratio:.3f}", f"{low:.3f} to {high:.3f}"]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
