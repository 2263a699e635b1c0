"""The members that a JSON object may have, for the message where a model found an unknown one."""

from collections.abc import Iterator, Sequence
from typing import get_args

from pydantic import BaseModel


def known_members(model: type[BaseModel], location: Sequence[int | str]) -> tuple[str, ...]:
    """The members of the object in which the last part of `location`, as pydantic gives it, is unknown.

    (WireGraph, ("nodes", 3, "outputs")) -> ("name", "op", "args", "attrs")
    """
    for part in location[:-1]:
        field = model.model_fields.get(str(part))  # indices of lists and keys of mappings are none
        if field is not None:
            model = next(_models(field.annotation), model)
    return tuple(model.model_fields)


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """The models in an annotation such as `dict[str, Model] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
