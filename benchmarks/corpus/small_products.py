"""Matrix products that sum over few elements, with bias and relu: their output is all that takes time."""

import fusion_ir.building as ir
from benchmarks.corpus.case import Case, Inputs
from benchmarks.corpus.pytorch import Tensor, torch
from fusion_ir.core.node import Node


def small_product(inputs: Inputs, rows: int, inner: int, columns: int) -> Node:
    a, b, bias = inputs(rows, inner), inputs(inner, columns), inputs(columns)
    return ir.relu(ir.add(ir.matmul(a, b), bias))


def torch_small_product(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    return torch.relu(a @ b + bias)


def torch_small_product_addmm(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    return torch.relu(torch.addmm(bias, a, b))


def _case(inner: int) -> Case:
    shapes = ((1, 1), (7, 33), (33, 129))
    return Case(
        name=f"product_k{inner}",
        kind="memory",
        build=small_product,
        torch=torch_small_product,
        also=(torch_small_product_addmm,),
        sizes={"rows": 8192, "inner": inner, "columns": 4096},
        small=tuple({"rows": m, "inner": inner, "columns": n} for m, n in shapes),
    )


SMALL_PRODUCTS = tuple(_case(inner) for inner in (1, 2, 4, 8, 16))
