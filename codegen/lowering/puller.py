"""Pulling: the value of a node at an index, by the rule of its op (`pull.py` has the table).

A store pulls its value through the cone of its output. Where a view straddles a radix or a bound, `Split` or `Cut`
tells the caller (`stores.py`) to refine an axis; once refinement is off (too many pieces), opaque digits and masks take
over.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from codegen.kernel import EmitError
from codegen.lowering.index import Affine
from codegen.lowering.reduction_axes import ReductionAxes
from codegen.lowering.value import Value, Values
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DType, compute_dtype

MAX_DEPTH = 200  # nodes from an input to an output: each pull waits for those of its operands, on Python's stack

Index = tuple[Affine, ...]
Rule = Callable[["Puller", Node, Index], Value]


@dataclass
class Puller:
    """Pulls nodes of one graph at indices.

    For unification: `visits` records where each node was read, in order, and `offsets` the elements read of each input.
    """

    graph: Graph
    values: Values
    bound: ReductionAxes
    rules: Mapping[str, Rule]
    refine: bool = True
    memo: dict[tuple[Node, Index], Value] = field(default_factory=dict[tuple[Node, Index], Value])
    visits: dict[Node, dict[Index, None]] = field(default_factory=dict[Node, dict[Index, None]])
    offsets: dict[int, dict[Index, None]] = field(default_factory=dict[int, dict[Index, None]])
    _depth: int = 0  # pulls that wait for each other

    def pull(self, node: Node, index: Index) -> Value:
        """The value of `node` at `index` (one expression per axis), in the node's dtype."""
        key = (node, index)
        if key not in self.memo:
            if self._depth >= MAX_DEPTH:
                raise EmitError(f"more than {MAX_DEPTH} nodes in a row in one kernel")
            self.visits.setdefault(node, {})[index] = None
            self._depth += 1
            try:
                self.memo[key] = self.rules[node.op](self, node, index)
            finally:
                self._depth -= 1
        return self.memo[key]

    def in_one_piece(self, pull: Callable[[], Value]) -> Value:
        """The result of `pull` with refinement off: axes stay whole, with masks and opaque digits instead of pieces."""
        refine, self.refine = self.refine, False
        try:
            return pull()
        finally:
            self.refine = refine

    def load(self, position: int, offset: Affine, dtype: DType) -> Value:
        """An element of an input."""
        self.offsets.setdefault(position, {})[(offset,)] = None
        return self.values.load(position, offset, dtype)

    def arg(self, node: Node, index: Index, dtype: DType | None = None) -> Value:
        """The value of `node` at `index`, cast to `dtype` (by default the compute dtype of the node)."""
        return self.values.cast(self.pull(node, index), dtype or compute_dtype(node.dtype))
