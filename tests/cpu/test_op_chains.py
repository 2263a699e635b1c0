"""Chains of two exact ops in C++ kernels: g++ 12 makes trunc(x) of (float)(long)x, which is -0.0 where 0.0 is right."""

import pytest

from codegen.families import FAMILIES
from codegen.workbench.workbench import Workbench
from fusion_ir.dtype import DTYPES
from tests.support.one_kernel import run_kernel
from tests.support.op_chains import chain_graph, unlike_in_bits
from tests.support.whole import few_or_all, in_turn

PARTS = 4  # of the chains, in a kernel each
CASES = [(d, k, f) for d in ("f32", "f64", "f16", "bf16") for k in ("casts", "unary") for f in ("pointwise", "naive")]
FEW = [("f32", "casts", "naive"), ("f64", "casts", "pointwise"), ("f32", "unary", "pointwise")]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("dtype", "kind", "family"), few_or_all(in_turn(FEW, 1, "chains"), [c for c in CASES if c not in FEW])
)
def test_chains_of_exact_ops_at_special_values(dtype: str, kind: str, family: str, bench: Workbench) -> None:
    wrong: list[str] = []
    for part in in_turn(range(PARTS), 1, f"{dtype} {kind} {family}"):
        graph, arrays = chain_graph(DTYPES[dtype], kind, part, PARTS)
        schedule = FAMILIES[family].space(graph, bench.device)[0]
        wrong += unlike_in_bits(graph, arrays, run_kernel(bench, graph, family, schedule, arrays))
    assert not wrong, "\n".join(wrong)
