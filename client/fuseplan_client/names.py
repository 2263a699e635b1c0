"""Names of a plan's inputs and outputs, as the sender of its graph knows them, and calls by these."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fuseplan_client.guards import GuardError

OWN = ("stream", "versions")  # arguments of a call itself: tensors of these names are given in a dict


@dataclass(frozen=True)
class Names:
    """Names in the order of the plan's inputs and outputs; no two inputs share a name, and no two outputs do."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @staticmethod
    def plain(inputs: int, outputs: int) -> "Names":
        """in0, in1, ... and out0, out1, ...: of a plan that nobody named the tensors of."""
        return Names(tuple(f"in{i}" for i in range(inputs)), tuple(f"out{i}" for i in range(outputs)))

    def label(self, place: str, position: int) -> str:
        """A tensor in messages: "in0", or "in0 'q'" where it has a name of its own. place: "in" or "out"."""
        name, plain = (self.inputs if place == "in" else self.outputs)[position], f"{place}{position}"
        return plain if name == plain else f"{plain} {name!r}"

    def arguments(self, given: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The inputs of a call in order: the first ones by position, or one dict; others by name. Raises GuardError."""
        if len(given) == 1 and isinstance(given[0], Mapping):
            named, given = {**given[0], **named}, ()
        if not named:
            return list(given)
        if len(given) + len(named) > len(self.inputs) and set(named) <= set(self.inputs):
            twice = [name for name in self.inputs[: len(given)] if name in named]
            raise GuardError(f"expected {len(self.inputs)} inputs, each once, got {_listed(twice)} twice")
        return [*given, *_by_name(named, self.inputs[len(given) :], "input")]

    def given(self, tensors: Sequence[Any] | Mapping[str, Any]) -> Sequence[Any]:
        """Inputs in order, of a sequence or by name. Raises GuardError."""
        return _by_name(tensors, self.inputs, "input") if isinstance(tensors, Mapping) else tensors

    def written(self, tensors: Sequence[Any] | Mapping[str, Any], optional: Mapping[int, object]) -> Sequence[Any]:
        """Outputs in order, of a sequence or by name. optional: positions of outputs that a mapping may leave out.
        Raises GuardError."""
        if not isinstance(tensors, Mapping):
            return tensors
        left_out = {self.outputs[i]: None for i in optional}
        return _by_name({**left_out, **tensors}, self.outputs, "output")

    def positions(self, versions: Mapping[int | str, Any]) -> dict[int, Any]:
        """Versions by position of the input, from versions by position or name. Raises GuardError."""
        unknown = [name for name in versions if isinstance(name, str) and name not in self.inputs]
        if unknown:
            raise GuardError(f"expected versions of {_listed(self.inputs)}, got one of {unknown[0]!r}")
        return {self.inputs.index(n) if isinstance(n, str) else n: version for n, version in versions.items()}


def _by_name(tensors: Mapping[str, Any], names: Sequence[str], what: str) -> list[Any]:
    unknown = [name for name in tensors if name not in names]
    if unknown:
        raise GuardError(f"expected {what}s {_listed(names)}, got one named {unknown[0]!r}")
    missing = [name for name in names if name not in tensors]
    if missing:
        own = f"; give it in a dict, since a call has a {missing[0]} of its own" if missing[0] in OWN else ""
        raise GuardError(f"expected {what}s {_listed(names)}, got none named {missing[0]!r}{own}")
    return [tensors[name] for name in names]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "of no names"
