"""Library calls on target `emulator`: computed by NumPy, checked like kernels, and between kernels in plans."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from codegen.devices.detection import detect
from codegen.families import FAMILIES
from codegen.hardware.libraries import CUBLASLT
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.workbench.workbench import Workbench
from fusion_ir import building as build
from fusion_ir.accuracy.comparison import compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f16
from fusion_ir.records import Measurement, Status
from fusion_ir.reference.sample_inputs import sample_inputs
from scheduler.bitset import bits
from scheduler.cost.traffic import traffic_of
from scheduler.plans.assemble import Choice, assemble
from scheduler.rewrites.prepare import prepare
from scheduler.segments.atoms import atoms_of
from scheduler.segments.segment import extract
from tests.support.candidates import NO_SEARCH, check_all, kernels_of
from tests.support.products import dense_graph, einsum_graph


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    cache = ObjectCache(tmp_path_factory.mktemp("objects"))
    device = detect("emulator:sm_80", cache).model_copy(update={"features": (CUBLASLT,)})
    with Workbench(device, cache, Limits(timing_seconds=0.0)) as made:
        yield made


def test_calls_are_checked_like_kernels(bench: Workbench) -> None:
    graphs = {
        "linear": dense_graph([(24, 40), (56, 40), (56,)], build.linear, f16),
        "scores": einsum_graph("thd", "shd", "hts", {"t": 20, "s": 24, "h": 3, "d": 64}, bf16),
        "weighted": dense_graph([(37, 65), (65, 48), (37, 48)], lambda x, w, y: build.addmm(y, x, w, 0.5, 2.0)),
    }
    wrong = check_all([(n, g, kernels_of(g, "aten", bench, most=1)) for n, g in graphs.items()], bench)
    assert not wrong, "\n".join(wrong)


def test_a_wrong_call_is_caught(bench: Workbench) -> None:
    graph = dense_graph([(32, 32), (32, 32)], build.matmul)
    (kernel,) = kernels_of(graph, "aten", bench, most=1)
    assert kernel.source.count('"turned":false') >= 2
    turned = replace(kernel, source=kernel.source.replace('"turned":false', '"turned":true', 1))
    (row,) = bench.measure(graph, "turned", [turned])
    assert row.status is Status.wrong_result


def test_a_plan_of_calls_and_kernels(bench: Workbench) -> None:
    def compute(x: Node, a: Node, b: Node) -> Node:
        return build.exp(build.linear(build.linear(x, a), b))

    graph: Graph = dense_graph([(24, 40), (56, 40), (32, 56)], compute, f16)
    prepared = prepare(graph)
    atoms = atoms_of(prepared.graph)
    choices: list[Choice] = []
    for atom in bits(atoms.all):
        segment = extract(atoms, atoms.piece(1 << atom))
        part = segment.canonical.graph
        name = "aten" if FAMILIES["aten"].accepts(part, bench.device) is None else "pointwise"
        family = FAMILIES[name]
        kernel = family.emit(part, family.space(part, bench.device)[0], bench.device)
        (binary,) = bench.compile_for_plans([kernel])
        assert not isinstance(binary, Measurement), binary
        choices.append(Choice(segment, traffic_of(segment.graph), kernel, binary, None))
    plan = assemble(prepared, bench.device, choices, NO_SEARCH)
    assert sorted(step.family for step in plan.steps) == ["aten", "aten", "pointwise"]
    inputs = sample_inputs(graph, 1)
    found = compare(bench.run(plan, [np.ascontiguousarray(x) for x in inputs]), reference(graph, inputs))
    assert found.ok, found.detail
