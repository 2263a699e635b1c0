"""A case of the corpus: one computation as a graph of ours and as a PyTorch user writes it, with sizes to try."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchmarks.corpus.pytorch import Tensors
from fusion_ir.arithmetic.conversions import round_to
from fusion_ir.building.operands import wide
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, DType
from fusion_ir.ops import make_input
from fusion_ir.reference.sample_inputs import sample_inputs
from fusion_ir.verify import verify

Sizes = Mapping[str, int]
Domain = tuple[float, float]
Made = Node | OutputSpec | Sequence[Node | OutputSpec]
Builder = Callable[..., Made]
Peer = Callable[..., Any]
Kind = Literal["memory", "matmul"]

DTYPE_NAMES = ("f32", "bf16", "f16")


class Inputs:
    """The inputs of a graph under construction: every call declares one more, of the case's dtype unless it says
    otherwise."""

    def __init__(self, dtype: DType) -> None:
        self.dtype, self.wide = dtype, wide(dtype)
        self.specs: list[InputSpec] = []
        self.domains: list[Domain | None] = []

    def __call__(
        self,
        *sizes: int,
        dtype: DType | None = None,
        strides: Sequence[int] | None = None,
        domain: Domain | None = None,
    ) -> Node:
        """strides: in elements, dense by default. domain: values are drawn evenly from [low, high), whole numbers for
        integers; by default as `sample_inputs` does."""
        chosen = tuple(strides) if strides is not None else dense_strides(sizes)
        self.specs.append(InputSpec(shape_of(sizes), dtype or self.dtype, chosen))
        self.domains.append(domain)
        return make_input(len(self.specs) - 1, self.specs[-1])


@dataclass(frozen=True)
class Instance:
    """A case at given sizes and dtype."""

    graph: Graph
    domains: tuple[Domain | None, ...]

    def sample(self, seed: int) -> list[np.ndarray]:
        """Inputs that both sides accept: indices lie within their axes."""
        arrays = sample_inputs(self.graph, seed)
        for position, (array, domain) in enumerate(zip(arrays, self.domains, strict=True)):
            if domain is not None:
                low, high = domain
                drawn = np.random.default_rng([seed, position]).random(array.shape) * (high - low) + low
                whole = np.floor(drawn) if array.dtype.kind in "iu" else drawn
                array[...] = round_to(np.asarray(whole), self.graph.inputs[position].dtype)
        return arrays


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row of the corpus.

    build: (inputs, sizes by keyword) -> outputs. torch: the same over PyTorch's tensors, in the order of the inputs;
    sizes reach it by the names of its keyword-only parameters. also: other ways in which a user may write it, of which
    a comparison takes the fastest. agreeing: what `build` is compared with, where `torch` draws random numbers of its
    own. sizes: of the benchmark; small: of the tests. bench_dtypes: those that are timed. kind: what bounds its time,
    see `balance.py`.
    """

    name: str
    kind: Kind
    build: Builder
    torch: Peer
    sizes: Sizes
    small: tuple[Sizes, ...]
    also: tuple[Peer, ...] = ()
    agreeing: Peer | None = None
    bench_dtypes: tuple[str, ...] = ("f32", "bf16")

    def instance(self, dtype: str, sizes: Sizes | None = None) -> Instance:
        """The verified graph, at the benchmark's sizes unless others are given. `dtype`: any float dtype, f64 too."""
        inputs = Inputs(DTYPES[dtype])
        made = self.build(inputs, **(sizes or self.sizes))
        outputs = [made] if isinstance(made, Node | OutputSpec) else list(made)
        specs = [OutputSpec(o, dense_strides(o.sizes)) if isinstance(o, Node) else o for o in outputs]
        graph = Graph(tuple(inputs.specs), tuple(specs))
        verify(graph)
        return Instance(graph, tuple(inputs.domains))

    def peer(self, sizes: Sizes | None = None, function: Peer | None = None) -> Callable[..., Tensors]:
        """`torch` (or another function of the case) at given sizes, as a function of tensors to a tuple of tensors."""
        chosen = function or self.torch
        known = sizes or self.sizes
        wanted = inspect.signature(chosen).parameters.values()
        keywords = {p.name: known[p.name] for p in wanted if p.kind is p.KEYWORD_ONLY}

        def call(*tensors: Any) -> Tensors:
            result = chosen(*tensors, **keywords)
            return result if isinstance(result, tuple) else (result,)

        return call
