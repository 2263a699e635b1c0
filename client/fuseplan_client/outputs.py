"""The result of a call of a plan: its outputs in order, and by name."""

from collections.abc import Iterable, Iterator
from typing import Any


class Outputs(tuple[Any, ...]):
    """A tuple of arrays that also takes names: `outputs[0]` and `outputs["y"]`."""

    names: tuple[str, ...]

    def __new__(cls, arrays: Iterable[Any], names: tuple[str, ...]) -> "Outputs":
        made = super().__new__(cls, arrays)
        made.names = names
        return made

    def __getitem__(self, key: Any) -> Any:
        """Raises KeyError for a name that no output has, IndexError."""
        if not isinstance(key, str):
            return super().__getitem__(key)
        if key not in self.names:
            raise KeyError(f"expected an output, one of {', '.join(map(repr, self.names))}, got {key!r}")
        return super().__getitem__(self.names.index(key))

    def items(self) -> Iterator[tuple[str, Any]]:
        """Names with arrays, in order."""
        return zip(self.names, self, strict=True)
