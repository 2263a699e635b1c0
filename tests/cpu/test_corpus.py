"""The corpus of the benchmark: every case builds, means what its PyTorch function says, and its plans compute that."""

import os
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from benchmarks.corpus import CASES, TOPICS
from benchmarks.corpus.agreement import disagreement, run_torch, truth
from benchmarks.corpus.balance import BALANCE, bytes_of, intensity, kind_of
from benchmarks.corpus.case import DTYPE_NAMES, Case
from benchmarks.corpus.pytorch import HAS_TORCH
from codegen.workbench.programs import order_of
from codegen.workbench.workbench import Workbench
from fusion_ir.accuracy.comparison import compare
from fusion_ir.accuracy.tolerance import reference
from fusion_ir.arithmetic.conversions import widen
from fusion_ir.records import Plan
from fusion_ir.reference.interpreter import interpret
from scheduler.budget import Budget
from scheduler.interfaces import Forgetful
from scheduler.tune import tune

needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="needs PyTorch: the extra `bench`")
each_case = pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
each_dtype = pytest.mark.parametrize("dtype", DTYPE_NAMES)

# `make soak`: every case, dtype and size is planned; otherwise each case at one size in one dtype.
WHOLE = int(os.environ.get("FUSEPLAN_RANDOM_GRAPHS", "0")) >= 2000


def test_names_are_unique() -> None:
    assert len(CASES) == sum(len(cases) for cases in TOPICS.values())


@each_case
def test_kind_follows_from_the_graph(case: Case) -> None:
    assert case.kind == kind_of(case), f"{intensity(case.instance('f32').graph):.2f} operations a byte, {BALANCE=}"


@each_case
def test_memory_bound_sizes_are_beyond_the_caches(case: Case) -> None:
    moved = [bytes_of(case.instance(dtype).graph) / 1e6 for dtype in case.bench_dtypes]
    assert case.kind == "matmul" or all(48 <= megabytes <= 160 for megabytes in moved), moved


@each_case
def test_small_sizes_are_odd_and_even(case: Case) -> None:
    assert len(case.small) >= 3
    assert any(n % 2 and n > 1 for sizes in case.small for n in sizes.values())


@each_case
@each_dtype
@pytest.mark.sweep(0.3)
def test_graph_builds_and_is_finite(case: Case, dtype: str) -> None:
    for sizes in case.small:
        instance = case.instance(dtype, sizes)
        outputs = interpret(instance.graph, instance.sample(0))
        assert all(np.isfinite(widen(o)).all() for o in outputs), sizes


@needs_torch
@each_case
@pytest.mark.parametrize("dtype", ["f64", *DTYPE_NAMES])
@pytest.mark.sweep(0.03)
def test_graph_means_what_its_function_says(case: Case, dtype: str) -> None:
    for sizes in case.small:
        instance = case.instance(dtype, sizes)
        arrays = instance.sample(0)
        own = reference(instance.graph, arrays)
        assert not disagreement(own.outputs, truth(case, dtype, sizes, arrays), own), sizes


@needs_torch
@each_case
@each_dtype
@pytest.mark.sweep(0.3)
def test_outputs_have_the_dtypes_of_the_function(case: Case, dtype: str) -> None:
    instance = case.instance(dtype, case.small[1])
    theirs = run_torch(case, case.small[1], instance.sample(0))
    assert [a.dtype for a in theirs] == [o.node.dtype.numpy for o in instance.graph.outputs]


@needs_torch
@pytest.mark.parametrize("case", [case for case in CASES.values() if case.also], ids=lambda case: case.name)
def test_other_spellings_say_the_same(case: Case) -> None:
    sizes = case.small[1]
    arrays = case.instance("f32", sizes).sample(0)
    said = truth(case, "f32", sizes, arrays)
    own = reference(case.instance("f32", sizes).graph, arrays)
    for spelling in case.also:
        other = replace(case, torch=spelling)
        assert not disagreement(run_torch(other, sizes, arrays), said, own)


@needs_torch
def test_a_wrong_meaning_is_noticed() -> None:
    case = CASES["outer_sum_scale"]
    sizes = case.small[2]
    instance = case.instance("f32", sizes)
    arrays = instance.sample(0)
    own = reference(instance.graph, arrays)
    outputs = [o * np.float32(1.00001) for o in own.outputs]
    assert "PyTorch says" in disagreement(outputs, truth(case, "f32", sizes, arrays), own)


def planned() -> list[tuple[str, str, int]]:
    """Case, dtype and number of the size."""
    every = [(c.name, d, s) for c in CASES.values() for d, s in product(DTYPE_NAMES, range(len(c.small)))]
    if WHOLE:
        return every
    count = len(DTYPE_NAMES)
    return [(c.name, DTYPE_NAMES[i % count], 1 + i // count % 2) for i, c in enumerate(CASES.values())]


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "dtype", "number"), planned())
@pytest.mark.sweep(0.04)
def test_plan_computes_the_case(name: str, dtype: str, number: int, bench: Workbench) -> None:
    case = CASES[name]
    sizes = case.small[number]
    instance = case.instance(dtype, sizes)
    arrays = instance.sample(0)
    plan: Plan = tune(instance.graph, bench.device, Budget(0.0), Forgetful(), bench)
    got = bench.run(plan, arrays)
    own = reference(instance.graph, arrays, order=order_of(plan))
    outcome = compare(got, own)
    assert outcome.ok, outcome.detail
    if HAS_TORCH:
        assert not disagreement(got, truth(case, dtype, sizes, arrays), own, times=2)
