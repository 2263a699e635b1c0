"""A graph to check candidates on: inputs, what must come out, and the comparison. Knows no device."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np

from fusion_ir.accuracy.comparison import Reference, compare
from fusion_ir.accuracy.tolerance import Order, reference, strictest
from fusion_ir.core.graph import Graph
from fusion_ir.records import Status
from fusion_ir.reference.sample_inputs import samples

Array = np.ndarray[Any, Any]
Proven = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """One set of inputs and what must come out of it."""

    inputs: list[Array]
    reference: Reference


@dataclass(frozen=True, slots=True)
class Case:
    """A graph with its trials: random data, and small integers too where the graph sums. others: what must come out of
    what may compute in another order, by trial and order, once such a thing was judged."""

    graph: Graph
    trials: tuple[Trial, ...]
    others: dict[tuple[int, Order], Reference] = field(
        default_factory=dict[tuple[int, Order], Reference], compare=False
    )

    def expected(self, trial: int, order: Order = "own") -> Reference:
        """What must come out, and how closely."""
        own, order = self.trials[trial], strictest(self.graph, order)
        if order == "own":
            return own.reference
        if (trial, order) not in self.others:
            self.others[trial, order] = reference(self.graph, own.inputs, order=order)
        return self.others[trial, order]

    @property
    def bytes(self) -> int:
        """Bytes of all inputs and outputs."""
        return self.graph.read_bytes + self.graph.written_bytes


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a check: what is wrong ("": nothing), and the largest relative error seen."""

    problem: str
    max_rel_error: float | None


def make_case(graph: Graph, seed: int, proven: Proven = ()) -> Case:
    """Samples inputs and interprets the graph. proven: files of outputs, by trial, that are right whatever the
    interpreter's are (`codegen.workbench.step_check`): these must come out, bit for bit."""
    inputs = samples(graph, seed)
    if not proven:
        return Case(graph, tuple(Trial(arrays, reference(graph, arrays)) for arrays in inputs))
    trials = [Trial(arrays, _exactly(graph, files)) for arrays, files in zip(inputs, proven, strict=True)]
    return Case(graph, tuple(trials))


def proven_of(message: Mapping[str, Any]) -> Proven:
    """As a message of the parent has it."""
    return tuple(tuple(files) for files in message.get("proven", ()))


def _exactly(graph: Graph, files: Sequence[str]) -> Reference:
    nodes = [o.node for o in graph.outputs]
    arrays = [np.fromfile(file, n.dtype.numpy).reshape(n.sizes) for n, file in zip(nodes, files, strict=True)]
    return Reference(arrays, [None] * len(arrays))


def judge(case: Case, trial: int, got: Sequence[Array], order: Order = "own") -> Verdict:
    """Compares outputs (arrays of the outputs' shapes, any strides) with the reference. order: that whoever made them
    may compute in."""
    for i, (array, output) in enumerate(zip(got, case.graph.outputs, strict=True)):
        if output.node.dtype.kind == "bool" and array.size and int(array.view(np.uint8).max()) > 1:
            return Verdict(f"out{i} holds a byte that is neither 0 nor 1: not written, or no bool", None)
    outcome = compare(list(got), case.expected(trial, order))
    error = outcome.max_rel_error if isfinite(outcome.max_rel_error) else None
    return Verdict("" if outcome.ok else outcome.detail or "wrong result", error)


def verdict_message(index: int, verdict: Verdict) -> dict[str, Any]:
    """What the parent is told about one candidate."""
    status = Status.wrong_result if verdict.problem else Status.ok
    return {
        "checked": index,
        "status": status.value,
        "detail": verdict.problem,
        "max_rel_error": verdict.max_rel_error,
    }


def strided(
    raw: np.ndarray[Any, np.dtype[np.uint8]], dtype: np.dtype[Any], sizes: Sequence[int], strides: Sequence[int]
) -> Array:
    """The tensor that lies in `raw`: strides in elements. Writable if `raw` is. Where `raw` has several axes, one in
    each row along the last of them."""
    flat = raw.view(f"u{dtype.itemsize}")  # as_strided does not know the f8 types: it sees their bits
    within = (s * dtype.itemsize for s in strides)
    shape = (*raw.shape[:-1], *sizes)
    return np.lib.stride_tricks.as_strided(flat, shape, (*raw.strides[:-1], *within)).view(dtype)
