"""Family `attention` on the device: its schedules on aligned tensors, of whole tiles and of rests, against the
interpreter; and what is no number, in columns that are blank."""

import math

import pytest

from codegen.families import FAMILIES
from codegen.workbench.workbench import Workbench
from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.dtype import DType, bf16, f16
from tests.support.attention import below, causal, masked, scores, tensor, whole
from tests.support.candidates import check_all, is_dropped_for_spills, kernels_of
from tests.support.products import dense_graph

ATTENTION = FAMILIES["attention"]


def graphs(dtype: DType) -> dict[str, Graph]:
    infinite = dense_graph(
        [tensor(40, 32, dtype=dtype), tensor(300, 32, dtype=dtype), tensor(300, 24, dtype=dtype)],
        lambda q, k, v: build.matmul(
            build.cast(build.softmax(build.where(below(40, 300), scores(q, k), -math.inf)), dtype),
            build.div(v, build.cast(build.lt(build.iota([300, 24], 0), 290), dtype)),
        ),
    )
    sides = [tensor(2, n, size, dtype=dtype) for n, size in ((130, 72), (1000, 72), (1000, 40))]
    return {
        "causal, whole tiles": causal(4, 512, 512, 64, 64, dtype),
        "causal, rests": causal(3, 300, 330, 40, 24, dtype),
        "all columns": dense_graph(sides, whole),
        "masked, whole tiles": masked(4, 512, 1024, 64, dtype),
        "masked, rests": masked(2, 70, 333, 72, dtype),
        "infinite": infinite,
    }


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
def test_attention_on_the_device(dtype: DType, bench: Workbench) -> None:
    cases = [(name, graph, kernels_of(graph, "attention", bench, most=6)) for name, graph in graphs(dtype).items()]
    wrong = [line for line in check_all(cases, bench) if not is_dropped_for_spills(line)]
    assert not wrong, "\n".join(wrong)
