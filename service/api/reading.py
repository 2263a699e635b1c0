"""From the bytes of a resolve request to a graph and its key. Pure: stores nothing, asks nobody.

`reader_process` calls it: what somebody sends is read where it can be ended.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError

from fusion_ir.core.named import NamedGraph
from fusion_ir.errors import FormatError
from fusion_ir.formats import read
from fusion_ir.formats.json.strict_json import decode, load_json
from fusion_ir.formats.json.wire import from_wire
from fusion_ir.formats.side_file import NOTHING, SHAPES, SideFile
from fusion_ir.formats.side_json import side_file
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.records import Device
from service.api.batch_models import CUSTOM_ID
from service.api.models import ResolveRequest
from service.errors import ApiError, from_validation, pointer
from service.settings import Settings

_DIGITS = re.compile(r"1:([0-9]+)")
_CUSTOM_ID = re.compile(CUSTOM_ID)


@dataclass(frozen=True)
class Ask:
    """A request that was read. `named` is None where only the key of a stored graph was given."""

    request: ResolveRequest
    named: NamedGraph | None
    graph_key: str


def read_body(body: bytes) -> Ask:
    """The request in a body. Raises ApiError `bad-json`, `bad-request` or `bad-graph`, each with the place."""
    return read_members(read_object(body))


def read_line(line: bytes, number: int, defaults: Mapping[str, Any]) -> tuple[str, "Ask | ApiError"]:
    """Line `number` of a batch: its custom_id, and the request, or what is wrong with that.

    defaults: members for the requests that lack them. Raises ApiError `bad-batch` for a line that is no JSON object
    with a custom_id, naming it: then the sender could not be told which item failed.
    """
    try:
        members = dict(read_object(line))
    except ApiError as error:
        column = _DIGITS.fullmatch(error.place or "")
        raise ApiError("bad-batch", error.detail, f"{number}:{column[1]}" if column else str(number)) from error
    custom_id = members.pop("custom_id", None)
    if not isinstance(custom_id, str) or not _CUSTOM_ID.fullmatch(custom_id):
        expected = "a custom_id of 1 to 512 characters, without control characters"
        raise ApiError("bad-batch", f"Expected {expected}.", str(number))
    try:
        return custom_id, read_members({**defaults, **members})
    except ApiError as error:
        return custom_id, error


def read_object(body: bytes) -> Mapping[str, Any]:
    """The JSON object in a body, whatever its members. Raises ApiError."""
    try:
        value = load_json(decode(body))
    except FormatError as error:
        # A JSON pointer means a limit or a repeated key: then the syntax was right.
        slug = "bad-graph" if error.place.startswith("/") else "bad-json"
        place = f"/graph{error.place}" if error.place.startswith("/nodes") else error.place or "1:1"
        raise ApiError(slug, error.reason, place) from error
    if not isinstance(value, dict):
        raise ApiError("bad-request", "Expected a JSON object.", "/")
    return cast(Mapping[str, Any], value)


def read_members(value: Mapping[str, Any]) -> Ask:
    """The request that these members make. Raises ApiError."""
    try:
        request = ResolveRequest.model_validate(value)
    except ValidationError as error:
        raise from_validation(error, ResolveRequest) from error
    named = _graph(request, value)
    if named is None:
        assert request.graph_key is not None
        return Ask(request, None, request.graph_key)
    return Ask(request, named, graph_key(named.graph))


def check_seconds(settings: Settings, seconds: float | None, place: str) -> None:
    """Raises ApiError for a longer search than the server makes."""
    if seconds is not None and seconds > settings.max_seconds:
        most = f"at most {settings.max_seconds:g} seconds (setting max_seconds)"
        raise ApiError("bad-request", f"Expected {most}, got {seconds:g}.", place)


def check_sampler(settings: Settings, sampler: str | None, place: str) -> None:
    """Raises ApiError for a sampler that the server does not let requests choose."""
    if sampler is not None and sampler not in settings.sampler_names:
        expected = f"one of {', '.join(settings.sampler_names)} (setting samplers)"
        raise ApiError("bad-request", f"Expected {expected}, got {sampler!r}.", place)


def check_device(device: Device, device_key: str | None, place: str) -> None:
    """Raises ApiError for a device that is not of the class that the request asks for."""
    if device_key is not None and device_key != device.class_key:
        here = f"{device.class_key} ({device.name}, {device.arch}, {device.units} units)"
        raise ApiError("other-device", f"Expected a device of class {device_key}, the server's is {here}.", place)


def _graph(request: ResolveRequest, value: Mapping[str, Any]) -> NamedGraph | None:
    """The graph in the request, None for a key alone."""
    given = [name for name in ("graph", "source", "graph_key") if getattr(request, name) is not None]
    if len(given) != 1:
        found = " and ".join(given) if given else "none of them"
        raise ApiError("bad-request", f"Expected exactly one of graph, source and graph_key; found {found}.", "/")
    for member in ("format", "shapes"):
        if getattr(request, member) is not None and request.source is None:
            raise ApiError("bad-request", f"`{member}` goes with `source`.", pointer((member,)))
    try:
        if request.graph is not None:
            return from_wire(value["graph"])
        if request.source is not None:
            return read(request.source, format=request.format, beside=_beside(request))
    except FormatError as error:
        raise ApiError("bad-graph", error.reason, _place(error, request)) from error
    return None


def _beside(request: ResolveRequest) -> SideFile:
    """The side file in the request's `shapes`, NOTHING without. Raises FormatError with a place below "shapes"."""
    if request.shapes is None:
        return NOTHING
    try:
        return side_file(request.shapes)
    except FormatError as error:
        raise FormatError(SHAPES + error.place, error.reason) from error


def _place(error: FormatError, request: ResolveRequest) -> str:
    """A pointer into the body for the wire format and the shapes; a place within `source` otherwise."""
    if request.graph is not None:
        return "/graph" + (error.place if error.place.startswith("/") else "")
    if error.place.startswith(f"{SHAPES}/"):
        return f"/{error.place}"
    return error.place or "/source"
