"""A graph to check candidates on: sampled inputs, reference outputs, and the comparison. Knows no device."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np

from fusion_ir.accuracy.comparison import Reference, compare
from fusion_ir.accuracy.tolerance import Order, reference, strictest
from fusion_ir.core.graph import Graph
from fusion_ir.reference.sample_inputs import samples
from fusion_ir.status import Status

Array = np.ndarray[Any, Any]
Proven = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class InputSet:
    """One set of inputs with its reference outputs."""

    inputs: list[Array]
    reference: Reference


@dataclass(frozen=True, slots=True)
class Case:
    """A graph with its sets of inputs: random data, and small integers too where the graph sums. others: references for
    candidates that may compute in another order, by (input set, order), each made when it is first needed."""

    graph: Graph
    input_sets: tuple[InputSet, ...]
    others: dict[tuple[int, Order], Reference] = field(
        default_factory=dict[tuple[int, Order], Reference], compare=False
    )

    def expected(self, input_set: int, order: Order = "own") -> Reference:
        """The reference of an input set: expected outputs and tolerances for candidates that may compute in `order`."""
        own, order = self.input_sets[input_set], strictest(self.graph, order)
        if order == "own":
            return own.reference
        if (input_set, order) not in self.others:
            self.others[input_set, order] = reference(self.graph, own.inputs, order=order)
        return self.others[input_set, order]

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
    """Samples inputs and interprets the graph. proven: files of right outputs, by input set, that take the place of the
    interpreter's (`codegen.workbench.step_check`): candidates must match them bit for bit."""
    inputs = samples(graph, seed)
    if not proven:
        return Case(graph, tuple(InputSet(arrays, reference(graph, arrays)) for arrays in inputs))
    input_sets = [InputSet(arrays, _exactly(graph, files)) for arrays, files in zip(inputs, proven, strict=True)]
    return Case(graph, tuple(input_sets))


def proven_of(message: Mapping[str, Any]) -> Proven:
    """The argument `proven` of `make_case`, read from a message of the parent; () where it has none."""
    return tuple(tuple(files) for files in message.get("proven", ()))


def _exactly(graph: Graph, files: Sequence[str]) -> Reference:
    nodes = [o.node for o in graph.outputs]
    arrays = [np.fromfile(file, n.dtype.numpy).reshape(n.sizes) for n, file in zip(nodes, files, strict=True)]
    return Reference(arrays, [None] * len(arrays))


def judge(case: Case, input_set: int, got: Sequence[Array], order: Order = "own") -> Verdict:
    """Compares outputs (arrays of the outputs' shapes, any strides) with the reference. order: the order of
    operations that the candidate may use."""
    for i, (array, output) in enumerate(zip(got, case.graph.outputs, strict=True)):
        if output.node.dtype.kind == "bool" and array.size and int(array.view(np.uint8).max()) > 1:
            return Verdict(f"out{i} holds a byte that is neither 0 nor 1: not written, or no bool", None)
    outcome = compare(list(got), case.expected(input_set, order))
    error = outcome.max_rel_error if isfinite(outcome.max_rel_error) else None
    return Verdict("" if outcome.ok else outcome.detail or "wrong result", error)


def verdict_message(index: int, verdict: Verdict) -> dict[str, Any]:
    """The message to the parent about the check of candidate `index`: status, problem, largest relative error."""
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
    """A view of `raw` as a tensor, with strides in elements; writable if `raw` is. Where `raw` has several axes, each
    row along the last one holds a tensor."""
    flat = raw.view(f"u{dtype.itemsize}")  # as_strided does not know the f8 types: it sees their bits
    within = (s * dtype.itemsize for s in strides)
    shape = (*raw.shape[:-1], *sizes)
    return np.lib.stride_tricks.as_strided(flat, shape, (*raw.strides[:-1], *within)).view(dtype)
