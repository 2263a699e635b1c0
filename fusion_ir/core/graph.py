"""A fusion graph: inputs with layouts, outputs with the layouts the caller wants, and everything between."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from fusion_ir.core.extent import Shape, dense_strides, sizes
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input: shape, dtype, strides in elements, alignment of its first element in bytes (a power of two).

    `constant` names the version of a weight: its value may be folded ahead of time; None for an ordinary input.
    """

    shape: Shape
    dtype: DType
    strides: tuple[int, ...]
    alignment_bytes: int = 16
    constant: str | None = None

    def __hash__(self) -> int:
        """A hash of few fields, which tell most inputs of a graph apart: those of extents take longer than all else."""
        return hash((self.strides, self.dtype, self.constant))

    @property
    def sizes(self) -> tuple[int, ...]:
        return sizes(self.shape)

    @property
    def is_dense(self) -> bool:
        """Row-major without gaps; strides of axes of extent 1 do not count."""
        return all(
            n == 1 or s == d for n, s, d in zip(self.sizes, self.strides, dense_strides(self.sizes), strict=True)
        )

    @property
    def span(self) -> int:
        """Elements between the first and the last one, both included: what a buffer must hold."""
        return _span(self.sizes, self.strides)

    @property
    def bytes(self) -> int:
        """Bytes of the input's span."""
        return self.span * self.dtype.bytes


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """One output: the node, the strides wanted, and the input whose buffer it may take over.

    strides: in elements; dense by default.
    """

    node: Node
    strides: tuple[int, ...]
    donates: int | None = None

    @property
    def is_dense(self) -> bool:
        dense = dense_strides(self.node.sizes)
        return all(n == 1 or s == d for n, s, d in zip(self.node.sizes, self.strides, dense, strict=True))

    @property
    def span(self) -> int:
        """Elements between the first and the last one, both included."""
        return _span(self.node.sizes, self.strides)

    @property
    def bytes(self) -> int:
        """Bytes of the output's span."""
        return self.span * self.node.dtype.bytes


@dataclass(frozen=True)
class Graph:
    """Inputs in order (nodes with op "input", attribute `position`), outputs in order. Names are no part of it."""

    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]

    @cached_property
    def _hash(self) -> int:
        return hash((self.inputs, self.outputs))

    def __hash__(self) -> int:
        """The hash, computed once: graphs are keys of tables that are read again and again."""
        return self._hash

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every node that an output depends on, operands first, in depth-first order from the first output."""
        return tuple(topological(o.node for o in self.outputs))

    @property
    def read_bytes(self) -> int:
        """Bytes of all inputs."""
        return sum(spec.bytes for spec in self.inputs)

    @property
    def written_bytes(self) -> int:
        """Bytes of all outputs."""
        return sum(output.bytes for output in self.outputs)

    @cached_property
    def users(self) -> dict[Node, tuple[Node, ...]]:
        """The nodes that read each node, in topological order, once each."""
        users: dict[Node, dict[Node, None]] = {n: {} for n in self.nodes}
        for n in self.nodes:
            for a in n.args:
                users[a][n] = None
        return {n: tuple(u) for n, u in users.items()}


def _span(sizes: Sequence[int], strides: Sequence[int]) -> int:
    return 0 if 0 in sizes else 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))


def topological(roots: Iterable[Node]) -> Iterator[Node]:
    """Nodes below `roots`, operands before users, depth first; iterative, so depth is no limit."""
    done: set[Node] = set()
    for root in roots:
        stack = [(root, iter(root.args))]
        if root in done:
            continue
        while stack:
            node, args = stack[-1]
            for arg in args:
                if arg not in done:
                    stack.append((arg, iter(arg.args)))
                    break
            else:
                stack.pop()
                done.add(node)
                yield node
