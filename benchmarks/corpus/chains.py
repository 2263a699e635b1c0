"""Products of products: their order is free, and a slice in between makes most of the first one unneeded."""

import fusion_ir.building as ir
from benchmarks.corpus.case import Case, Inputs
from benchmarks.corpus.pytorch import Tensor
from fusion_ir.core.node import Node


def product_chain(inputs: Inputs, rows: int, first: int, second: int, columns: int) -> Node:
    """(A B) C, where A (B C) takes less."""
    a, b, c = inputs(rows, first), inputs(first, second), inputs(second, columns)
    return ir.matmul(ir.matmul(a, b), c)


def torch_product_chain(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return a @ b @ c


def sliced_chain(inputs: Inputs, rows: int, first: int, second: int, start: int, kept: int, columns: int) -> Node:
    """(A B)[:, start:start+kept] C."""
    a, b, c = inputs(rows, first), inputs(first, second), inputs(kept, columns)
    return ir.matmul(ir.slice_(ir.matmul(a, b), (0, start), (rows, start + kept)), c)


def torch_sliced_chain(a: Tensor, b: Tensor, c: Tensor, *, start: int, kept: int) -> Tensor:
    return (a @ b)[:, start : start + kept] @ c


CHAINS = (
    Case(
        name="product_chain", kind="matmul", build=product_chain, torch=torch_product_chain,
        sizes={"rows": 1024, "first": 1024, "second": 1024, "columns": 64},
        small=(
            {"rows": 1, "first": 3, "second": 1, "columns": 7},
            {"rows": 17, "first": 33, "second": 65, "columns": 3},
            {"rows": 65, "first": 129, "second": 33, "columns": 17},
        ),
    ),
    Case(
        name="sliced_chain", kind="matmul", build=sliced_chain, torch=torch_sliced_chain,
        sizes={"rows": 1024, "first": 512, "second": 2048, "start": 1024, "kept": 256, "columns": 1024},
        small=(
            {"rows": 1, "first": 3, "second": 7, "start": 1, "kept": 3, "columns": 1},
            {"rows": 17, "first": 33, "second": 65, "start": 31, "kept": 17, "columns": 7},
            {"rows": 33, "first": 64, "second": 129, "start": 0, "kept": 63, "columns": 65},
        ),
    ),
)  # fmt: skip
