"""Entries of `make bench-gpu`, the most telling first, since its time is short: pure products, products with an
epilogue over a range of depths, then the corpus, a case of every topic before the second of any. Last come the products
of f32, each of which Inductor tunes for a minute: near the end of the time they are raced without."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, zip_longest

import fusion_ir.building as ir
from benchmarks.corpus import TOPICS
from benchmarks.corpus.case import Case, Inputs, Peer
from benchmarks.corpus.matmuls import linear_gelu_residual, torch_linear_gelu_residual
from benchmarks.corpus.pytorch import F, Tensor
from fusion_ir.core.node import Node

SQUARES = (4096, 8192)
DEPTHS = (256, 512, 1024, 2048, 4096, 8192)
SIDE = 4096  # rows and columns of the products with an epilogue
TINY = 64


@dataclass(frozen=True)
class Entry:
    """A case in one dtype. alone: the product in it without the rest, over the first operands, as PyTorch hands it to
    cuBLAS; None where there is not one product."""

    topic: str
    case: Case
    dtype: str
    alone: Peer | None = None

    @property
    def name(self) -> str:
        return f"{self.case.name} {self.dtype}"


def product(inputs: Inputs, side: int) -> Node:
    return ir.matmul(inputs(side, side), inputs(side, side))


def torch_product(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


def torch_linear_alone(x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    return F.linear(x, weight)


def entries() -> Iterator[Entry]:
    """All entries, in order."""
    for side in SQUARES:
        square = Case(
            name=f"product_{side}", kind="matmul", build=product, torch=torch_product, sizes={"side": side},
            small=({"side": TINY},),
        )  # fmt: skip
        yield Entry("products", square, "bf16", torch_product)
    for depth in DEPTHS:
        case = Case(
            name=f"linear_gelu_residual_k{depth}", kind="matmul",
            build=linear_gelu_residual, torch=torch_linear_gelu_residual,
            sizes={"tokens": SIDE, "inner": depth, "features": SIDE},
            small=({"tokens": TINY, "inner": TINY, "features": TINY},),
        )  # fmt: skip
        yield Entry("products with an epilogue", case, "bf16", torch_linear_alone)
    yield from chain.from_iterable(_in_turn("bf16"))
    yield from sorted(chain.from_iterable(_in_turn("f32")), key=lambda e: e.case.kind == "matmul")


def _in_turn(dtype: str) -> Iterator[list[Entry]]:
    """The first case of every topic, then the second of every topic, and so on."""
    for row in zip_longest(*TOPICS.values()):
        pairs = zip(TOPICS, row, strict=True)
        yield [Entry(topic, case, dtype) for topic, case in pairs if case is not None and dtype in case.bench_dtypes]
