"""Pulling: the value of a node at an index, by the rule of its op (`pull.py` has the table).

A store pulls its value through the cone of its output. Where a view straddles a radix or a bound, `Split` or `Cut`
tells the caller (`stores.py`) to refine an axis; once refinement is off (too many pieces), opaque digits and masks take
over.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from codegen.lowering.bound import Bound
from codegen.lowering.index import Affine
from codegen.lowering.value import Value, Values
from fusion_ir.dtype import DType, compute_dtype
from fusion_ir.graph import Graph
from fusion_ir.node import Node

Index = tuple[Affine, ...]
Rule = Callable[["Puller", Node, Index], Value]


@dataclass
class Puller:
    """Pulls nodes of one graph at indices.

    For unification: `visits` records where each node was read, in order, and `offsets` the elements read of each input.
    """

    graph: Graph
    values: Values
    bound: Bound
    rules: Mapping[str, Rule]
    refine: bool = True
    memo: dict[tuple[Node, Index], Value] = field(default_factory=dict[tuple[Node, Index], Value])
    visits: dict[Node, dict[Index, None]] = field(default_factory=dict[Node, dict[Index, None]])
    offsets: dict[int, dict[Index, None]] = field(default_factory=dict[int, dict[Index, None]])

    def pull(self, node: Node, index: Index) -> Value:
        """The value of `node` at `index` (one expression per axis), in the node's dtype."""
        key = (node, index)
        if key not in self.memo:
            self.visits.setdefault(node, {})[index] = None
            self.memo[key] = self.rules[node.op](self, node, index)
        return self.memo[key]

    def load(self, position: int, offset: Affine, dtype: DType) -> Value:
        """An element of an input."""
        self.offsets.setdefault(position, {})[(offset,)] = None
        return self.values.load(position, offset, dtype)

    def arg(self, node: Node, index: Index, dtype: DType | None = None) -> Value:
        """Pulled and cast to `dtype`, by default the compute dtype."""
        return self.values.cast(self.pull(node, index), dtype or compute_dtype(node.dtype))
