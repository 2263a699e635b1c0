"""Ops at special values in CUDA kernels, in the emulator: as the interpreter has them, in vectors and in the tail."""

import pytest

from codegen.families import FAMILIES
from codegen.workbench import Workbench
from fusion_ir.dtype import DTYPES
from tests.support.one_kernel import run_kernel
from tests.support.special_values import special_graph, unlike_reference


@pytest.mark.parametrize(
    ("dtype", "family"),
    [
        ("bf16", "pointwise"),
        pytest.param("f32", "naive", marks=pytest.mark.soak),
        pytest.param("f64", "pointwise", marks=pytest.mark.soak),
    ],
)
def test_kernels_at_special_values(dtype: str, family: str, bench: Workbench) -> None:
    graph, arrays = special_graph(DTYPES[dtype])
    schedule = FAMILIES[family].space(graph, bench.device)[0]
    wrong = unlike_reference(graph, arrays, run_kernel(bench, graph, family, schedule, arrays))
    assert not wrong, "\n".join(wrong)
