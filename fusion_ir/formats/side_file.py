"""The side file, which states what a lossy text leaves open: symbolic sizes, numbers, strides, outputs of an excerpt.

Its form as JSON is in `fusion_ir.formats.side_json`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from fusion_ir.dtype import DType


@dataclass(frozen=True, slots=True)
class SideFile:
    """A side file that was read. `shapes`, `strides` and `dtypes` are those of inputs, by name."""

    extents: Mapping[str, int] = field(default_factory=dict[str, int])
    values: Mapping[str, float | int | bool] = field(default_factory=dict[str, "float | int | bool"])
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    strides: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    dtypes: Mapping[str, DType] = field(default_factory=dict[str, DType])
    outputs: tuple[str, ...] = ()

    @property
    def members(self) -> tuple[str, ...]:
        """The members of the JSON form that say something."""
        said = {
            "extents": self.extents,
            "values": self.values,
            "inputs": {*self.shapes, *self.strides, *self.dtypes},
            "outputs": self.outputs,
        }
        return tuple(name for name, content in said.items() if content)


NOTHING = SideFile()
SHAPES = "shapes"  # what places begin with that lie in the side file: "shapes/inputs/T0"


def stated_beside(what: str, example: Mapping[str, object]) -> str:
    """The advice of a message where a text leaves something open: to state `what` in the side file, as in `example`."""
    return f"state {what} beside the text (--shapes FILE), as in {json.dumps(example)}"
