"""Plans for an H200 that is not there: the corpus at small sizes and random graphs, planned with nothing timed, run
whole in the emulator, compared with the interpreter. FUSEPLAN_RANDOM_GRAPHS sets how many random ones; `make soak`:
2,000."""

import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from benchmarks.corpus import CASES
from benchmarks.corpus.case import DTYPE_NAMES
from codegen.devices.detection import detect
from codegen.hardware.gpus import specified
from codegen.kernel import Kernel
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.compiler import Binary
from codegen.workbench.workbench import Workbench
from fusion_ir import building as build
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f16, f32
from fusion_ir.formats import read
from fusion_ir.ops import make, make_input
from fusion_ir.reference.shrink import reduced
from scheduler.budget import Budget
from scheduler.interfaces import Forgetful
from scheduler.rewrites.matching.graph_queries import GraphQueries
from scheduler.rewrites.rules.matrix_chain import CHAINS
from scheduler.tune import tune
from testing.random_graphs import Chooser, Seeded, any_graph, pointwise_graph
from testing.rule_graphs import rule_graph
from tests.support.absent import Collector, plan_and_emulate
from tests.support.kernels import dense, graph_of
from tests.support.random_reductions import reduction_graph
from tests.support.whole import WHOLE, in_turn, seed

GRAPHS = int(os.environ.get("FUSEPLAN_RANDOM_GRAPHS", "6"))
FIRST_SEED = 20_000 + (0 if WHOLE else seed() % 600)  # others than the tests of the CPU take; the long run has 667
TOGETHER = 250  # random graphs that are planned before their kernels are compiled
EXAMPLES = Path(__file__).parents[2] / "examples"
H200 = specified("h200", "")


def chained_graph(choose: Chooser) -> Graph:
    """Chains of products, with what rules about them match."""
    return rule_graph(choose, (f16, bf16, f32)[choose.below(3)])


KINDS = (pointwise_graph, any_graph, reduction_graph)
FAMILY_CASES = {
    "pointwise": "rope_llama_2_7b", "reduction": "outer_sum_scale", "normalization": "layer_norm",
    "transpose": "transposed_add", "matmul": "linear_gelu_residual",
}  # fmt: skip
EVERY = 5  # seeds there is a chain, too: these take longest to plan and to compile


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Generator[Workbench]:
    cache = ObjectCache(tmp_path_factory.mktemp("cache"))
    limits = Limits(timing_seconds=0.0, kernels_per_file=40, compile_seconds=280.0)
    with Workbench(detect(f"emulator:{H200.arch}", cache), cache, limits) as bench:
        yield bench


def corpus() -> dict[str, Graph]:
    """Every case once: dtypes and sizes, the odd ones and the even, in turn."""
    count = len(DTYPE_NAMES)
    return {
        name: case.instance(DTYPE_NAMES[i % count], case.small[1 + i // count % 2]).graph
        for i, (name, case) in enumerate(CASES.items())
    }


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.turn("emulated plans")
def test_corpus(emulator: Workbench) -> None:
    """All cases in the long run; in others some of them, and one for each family."""
    graphs = corpus()
    drawn = {name: graphs[name] for name in (*in_turn(graphs, 2, "corpus"), *FAMILY_CASES.values())}
    result = plan_and_emulate(drawn, H200, emulator)
    assert not result.wrong, "\n".join(result.wrong)
    assert result.plans == len(drawn)
    assert FAMILY_CASES.keys() <= result.families.keys()


@pytest.mark.soak
@pytest.mark.turn("emulated plans")
def test_examples_at_reduced_sizes(emulator: Workbench) -> None:
    """The graphs of examples/ at a hundredth of their sizes and less: whole ones are too large for the emulator."""
    files = in_turn((f for f in sorted(EXAMPLES.iterdir()) if f.name != "README.md"), 2, "examples")
    graphs = {f.name: reduced(read(f.read_text(), filename=f.name).graph) for f in files}
    result = plan_and_emulate(graphs, H200, emulator)
    assert not result.wrong, "\n".join(result.wrong)
    assert result.plans == len(files)


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.turn("emulated plans")
def test_random_graphs(emulator: Workbench, capsys: pytest.CaptureFixture[str]) -> None:
    made = (
        (f"{kind.__name__} {number}", kind(Seeded(number)))
        for number in range(FIRST_SEED, FIRST_SEED + -(-GRAPHS // len(KINDS)))
        for kind in (KINDS if number % EVERY else (*KINDS, chained_graph))
    )
    plans, elsewhere, wrong = 0, 0, list[str]()
    while batch := dict(islice(made, TOGETHER)):
        result = plan_and_emulate(batch, H200, emulator)
        plans += result.plans
        elsewhere += result.elsewhere
        wrong += result.wrong
    with capsys.disabled():
        print(
            f"\n{plans} random graphs planned for {H200.name}, {elsewhere} of the plans with rewrites that round other "
            f"values, {len(wrong)} wrong in the emulator"
        )
    assert not wrong, "\n".join(wrong[:20])
    assert plans >= GRAPHS
    assert elsewhere >= GRAPHS // 100


def test_a_wrong_kernel_is_noticed(emulator: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that adds where it has to subtract is reported as a wrong result by `plan_and_emulate`."""
    spec = dense(37)
    graph = graph_of((spec, spec), make("sub", [make_input(0, spec), make_input(1, spec)]))
    collect = Collector.compile_for_plans

    def faulty(self: Collector, kernels: Sequence[Kernel], graph: Graph | None = None, **how: Any) -> list[Binary]:
        assert all("sub_(" in k.source for k in kernels)
        return collect(self, [replace(k, source=k.source.replace("sub_(", "add_(")) for k in kernels], graph, **how)

    monkeypatch.setattr(Collector, "compile_for_plans", faulty)
    result = plan_and_emulate({"difference": graph}, H200, emulator)
    assert len(result.wrong) == 1
    assert "wrong_result" in result.wrong[0]


def chain() -> Graph:
    """(x y) z, z a vector: y z first takes a sixteenth of the work."""
    shapes = [(16, 32), (32, 32), (32, 1)]
    specs = tuple(InputSpec(shape_of(s), f16, dense_strides(s), 16) for s in shapes)
    x, y, z = (make_input(i, s) for i, s in enumerate(specs))
    result = build.matmul(build.matmul(x, y), z)
    return Graph(specs, (OutputSpec(result, dense_strides(result.sizes)),))


def wrong_orders(node: Node, around: GraphQueries) -> Iterator[Node]:
    """x (y^T z) for (x y) z."""
    if node.op == "contract" and node.args[0].op == "contract":
        (x, y), z = node.args[0].args, node.args[1]
        yield build.matmul(x, build.matmul(build.transpose(y), z))


def test_a_wrong_alternative_is_noticed(emulator: Workbench) -> None:
    """A wrong rewrite of a matrix chain is reported even in 16 bits, where another order is not held to the graph's
    values. The right rewrite passes, and its plan says that nobody checked it."""
    result = plan_and_emulate({"chain": chain()}, H200, emulator)
    assert not result.wrong and result.elsewhere == 1
    faulty = tuple(replace(o, find=wrong_orders) for o in CHAINS)
    result = plan_and_emulate({"chain": chain()}, H200, emulator, faulty)
    assert result.elsewhere == 1
    assert len(result.wrong) == 1
    assert "wrong_result" in result.wrong[0]
    plan = tune(chain(), H200, Budget(0.0), Forgetful(), Collector())
    assert "chain-order" in plan.rewrites and any("nobody checked" in r.text for r in plan.reasons)
    assert "rounds_elsewhere" in plan.model_dump_json()
    plan = tune(chain(), H200, Budget(0.0), Forgetful(), Collector(), numerics="exact")
    assert not plan.rewrites and not any("nobody checked" in r.text for r in plan.reasons)
    assert "rounds_elsewhere" not in plan.model_dump_json(), "plans from before the field keep their keys"
