"""Cache of the sums and contractions that no perturbation reaches (`fusion_ir.accuracy.perturb`), which are equal in
every run over a graph.

They are most of the work of a run, so the first run that needs one keeps it for all; a contraction is kept even by the
interpreter's own evaluation, before any run.
"""

import threading
from collections.abc import Callable, Iterable

import numpy as np

from fusion_ir.core.node import Node
from fusion_ir.ops.contract import contract_arrays

SHARED_BYTES = 1 << 30  # at most, for one set of inputs: beyond it each run computes what it needs

Key = tuple[str, Node, int]  # what, of which node, in which piece


class SumCache:
    """Arrays that are computed once for all runs, by node and piece. Before `share` is called, only results of
    `of_contraction` are kept. most_bytes: of all arrays together."""

    def __init__(self, most_bytes: int = SHARED_BYTES) -> None:
        self._room = most_bytes
        self._nodes: set[Node] = set()
        self._found: dict[Key, tuple[np.ndarray, ...]] = {}
        self._lock = threading.Lock()

    def share(self, nodes: Iterable[Node]) -> None:
        """Declares that these nodes have equal operands in every run from now on."""
        self._nodes.update(nodes)

    def shares(self, node: Node) -> bool:
        """Whether the node's operands are equal in every run."""
        return node in self._nodes

    def once(
        self, what: str, node: Node, piece: int, make: Callable[[], tuple[np.ndarray, ...]]
    ) -> tuple[np.ndarray, ...]:
        """The arrays that `make` computes, which nobody may write to. Called by threads, with different pieces."""
        key = what, node, piece
        found = self._found.get(key)
        if found is not None:
            return found
        made = make()
        size = sum(x.nbytes for x in made)
        with self._lock:
            if size <= self._room:
                self._room -= size
                self._found[key] = made
        return made

    def of_contraction(self, node: Node, piece: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """A contraction whose operands are equal in every run, in its accumulator's dtype, unrounded."""
        return self.once("product", node, piece, lambda: (contract_arrays(node, a, b),))[0]
