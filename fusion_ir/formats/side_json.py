"""The side file as JSON: what a lossy text leaves open, sizes, numbers, strides, outputs of an excerpt.

    {"extents": {"i0": 4096},
     "values": {"d7": 0.125, "T21": -1.0},
     "inputs": {"T0": {"shape": [1, 4096, 1024], "strides": [4194304, 1024, 1], "dtype": "bf16"}},
     "outputs": ["T34", "T26"]}

Every member may be left out; which of them a format takes stands in its row of `READERS`. Strides are in elements.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fusion_ir.core.limits import LIMITS, check_sizes
from fusion_ir.dtype import DTYPES
from fusion_ir.errors import FormatError, excerpt
from fusion_ir.formats.json.faults import first_error
from fusion_ir.formats.json.strict_json import decode, load_json, pointer
from fusion_ir.formats.json.wire import DTypeName, Name
from fusion_ir.formats.side_file import SideFile

Extent = Annotated[int, Field(ge=0, le=LIMITS.elements)]
Extents = Annotated[list[Extent], Field(max_length=LIMITS.rank)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class SideInput(_Model):
    """Facts about one input that the text does not state. A dtype is only compared with the text's, where that has
    one."""

    shape: Extents | None = Field(None, description="extents, 0 or more")
    strides: Extents | None = Field(None, description="in elements")
    dtype: DTypeName | None = None


class SideModel(_Model):
    """The side file as JSON: what a text leaves open."""

    extents: Annotated[dict[Name, Extent], Field(max_length=LIMITS.nodes)] = Field(
        default_factory=dict, description="symbolic extents by name"
    )
    values: Annotated[dict[Name, bool | int | float], Field(max_length=LIMITS.nodes)] = Field(
        default_factory=dict, description="scalars by name; of a pad, by the name of its result, the value it fills in"
    )
    inputs: Annotated[dict[Name, SideInput], Field(max_length=LIMITS.inputs)] = Field(
        default_factory=dict, description="inputs by name"
    )
    outputs: Annotated[list[Name], Field(max_length=LIMITS.outputs)] = Field(
        default_factory=list, description="what an excerpt, which ends before its outputs, is to put out"
    )


def read_side_file(body: str | bytes) -> SideFile:
    """The side file that a JSON text holds. Raises FormatError with line and column, or a JSON pointer."""
    value = load_json(decode(body) if isinstance(body, bytes) else body)
    try:
        return side_file(SideModel.model_validate(value))
    except ValidationError as error:
        raise first_error(error, SideModel, value) from None


def side_file(model: SideModel) -> SideFile:
    """The checked model as readers take it. Raises FormatError with a JSON pointer."""
    for name, given in model.inputs.items():
        if given.shape is not None:
            check_sizes(pointer(("inputs", name, "shape")), given.shape)
    if len(set(model.outputs)) != len(model.outputs):
        repeated = next(n for i, n in enumerate(model.outputs) if n in model.outputs[:i])
        raise FormatError("/outputs", f"{excerpt(repeated)} is named twice")
    return SideFile(
        extents=model.extents,
        values=model.values,
        shapes={n: tuple(g.shape) for n, g in model.inputs.items() if g.shape is not None},
        strides={n: tuple(g.strides) for n, g in model.inputs.items() if g.strides is not None},
        dtypes={n: DTYPES[g.dtype] for n, g in model.inputs.items() if g.dtype is not None},
        outputs=tuple(model.outputs),
    )
