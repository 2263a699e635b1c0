"""Ops at special values in CUDA kernels, in the emulator: as the interpreter has them, in vectors and in the tail."""

import pytest

from codegen.families import FAMILIES
from codegen.workbench.workbench import Workbench
from fusion_ir.dtype import DTYPES
from tests.support.one_kernel import run_kernel
from tests.support.special_values import ENDANGERED, special_graph, unlike_reference
from tests.support.whole import few_or_all, in_turn

PARTS = 4  # that the ops are computed in: a compiler takes minutes for all of f64 at once


@pytest.mark.turn("emulated ops")
@pytest.mark.soak
@pytest.mark.parametrize(
    ("dtype", "family"), few_or_all([("bf16", "pointwise")], [("f32", "naive"), ("f64", "pointwise")])
)
def test_kernels_at_special_values(dtype: str, family: str, bench: Workbench) -> None:
    wrong: list[str] = []
    for part in in_turn(range(PARTS), 1, f"{dtype} {family}"):
        graph, arrays = special_graph(DTYPES[dtype], ENDANGERED[part::PARTS])
        schedule = FAMILIES[family].space(graph, bench.device)[0]
        wrong += unlike_reference(graph, arrays, run_kernel(bench, graph, family, schedule, arrays))
    assert not wrong, "\n".join(wrong)
