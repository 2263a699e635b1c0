"""Malformed JSON, swept: every member missing, of every wrong kind, and one too many, at each level. Messages name a
place and are in words of JSON, never in those of the classes and the library behind the reader."""

import ast
import copy
import json
import re
from collections.abc import Iterator
from typing import Any, cast

import pytest

from fusion_ir.errors import FormatError
from fusion_ir.formats.json.wire import WireGraph, from_wire
from fusion_ir.formats.nvfuser import python_words
from fusion_ir.formats.side_json import SideModel, read_side_file

Json = dict[str, Any]
Path = tuple[str | int, ...]

GRAPH: Json = {
    "format": "fuseplan.graph",
    "version": 1,
    "inputs": [
        {"name": "x", "shape": [4, 8], "dtype": "f32", "strides": [8, 1], "alignment": 16},
        {"name": "w", "shape": [8], "dtype": "f32", "strides": [1], "alignment": 16, "constant": "v1"},
    ],
    "nodes": [
        {"name": "a", "op": "mul", "args": ["x", "w"]},
        {"name": "b", "op": "softmax", "args": ["a"], "attrs": {"axis": -1}},
        {"name": "c", "op": "sum", "args": ["b"], "attrs": {"axes": [1], "keepdims": True}},
        {"name": "d", "op": "pad", "args": ["b"], "attrs": {"low": [0, 1], "high": [1, 0], "value": 0.5}},
        {"name": "e", "op": "cast", "args": ["c"], "attrs": {"dtype": "f16"}},
        {"name": "f", "op": "gelu", "args": ["d"], "attrs": {"approximate": "tanh"}},
        {"name": "g", "op": "full", "attrs": {"shape": [2], "value": 1.0, "dtype": "f32"}},
        {"name": "h", "op": "var_mean", "args": ["x"], "attrs": {"axes": [1], "correction": 0}},
    ],
    "outputs": [
        {"node": "e", "name": "out", "strides": [1, 1]},
        {"node": "b", "donates": "x"},
        {"node": "f"},
        {"node": "g"},
        {"node": "h.1"},
    ],
}
SIDE: Json = {
    "extents": {"i0": 4},
    "values": {"d0": 0.5, "i1": 3, "b0": True},
    "inputs": {"T0": {"shape": [1, 2], "strides": [2, 1], "dtype": "bf16"}},
    "outputs": ["T1"],
}
OTHERS: list[object] = [
    None, True, False, -1, 0, 7, 2**63, 2**70, 0.5, float("nan"), float("inf"), "", "x", "f32",
    "f32:0x0", "f32:0x", "f32:0x_1", "float32:0x0", "\ud800",
    "y" * 300, [], [None], [True], ["x"], [0.5], [[1]], [1] * 100, {}, {"a": None},
]  # fmt: skip

# Pydantic's words, Python's names of types and of exceptions, and what belongs to none of the two but to this code.
INTERNAL = re.compile(
    r"Wire[A-Z]|Side[A-Z]|NoneType|pydantic|model|dict|instance|Input should|valid (integer|string|list|number|boolean)"
    r"|tuple|\bstr\b|\bfloat\b|\bint\b|\bNone\b|\bTrue\b|\bFalse\b|Error|Traceback|<class|object at 0x"
    r"|literal|validation|unhashable|\bkwarg"
)


def paths(value: object, path: Path = ()) -> Iterator[Path]:
    """Every place in a JSON value, the whole of it first."""
    yield path
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield from paths(child, (*path, key))


def at(value: object, path: Path) -> Any:
    for part in path:
        value = cast(Any, value)[part]
    return value


def changed(value: Json, path: Path, new: object) -> object:
    if not path:
        return new
    result = copy.deepcopy(value)
    at(result, path[:-1])[path[-1]] = new
    return result


def without(value: Json, path: Path) -> object:
    result = copy.deepcopy(value)
    del at(result, path[:-1])[path[-1]]
    return result


def told(read: Any, value: object) -> FormatError | None:
    try:
        read(value)
    except FormatError as error:
        return error
    return None


def check(error: FormatError, value: object) -> None:
    """The place is there, but where the whole is of a wrong kind; the words are those of JSON."""
    quoted = re.sub(r"'(?:[^'\\]|\\.)*'", "''", error.reason)  # what was given, and names of ours
    assert not INTERNAL.search(quoted), str(error)
    assert len(str(error)) < 1000
    if isinstance(value, dict):
        assert error.place, str(error)
        parts = [p.replace("~1", "/").replace("~0", "~") for p in error.place.split("/")[1:]]
        for part in parts[:-1]:
            assert isinstance(value, dict | list), str(error)
            value = value[int(part)] if isinstance(value, list) else value[part]


READERS: dict[str, tuple[Json, Any]] = {
    "graph": (GRAPH, from_wire),
    "side": (SIDE, lambda value: read_side_file(json.dumps(value))),
}


@pytest.mark.parametrize("which", READERS)
def test_of_every_wrong_kind(which: str) -> None:
    value, read = READERS[which]
    assert told(read, value) is None
    refused = 0
    for path in paths(value):
        for other in OTHERS:
            given = changed(value, path, other)
            error = told(read, given)
            if error is not None:
                refused += 1
                check(error, given)
    assert refused > 400


@pytest.mark.parametrize("which", READERS)
def test_missing(which: str) -> None:
    value, read = READERS[which]
    refused = 0
    for path in paths(value):
        if path:
            given = without(value, path)
            error = told(read, given)
            if error is not None:
                refused += 1
                check(error, given)
    assert refused > 20 or which == "side"


@pytest.mark.parametrize("which", READERS)
def test_one_too_many(which: str) -> None:
    value, read = READERS[which]
    for path in paths(value):
        if isinstance(at(value, path), dict) and path != ("extents",) and path != ("values",) and path != ("inputs",):
            for name in ("color", "shapes", "Dtype", "\n"):
                given = changed(value, (*path, name), 1) if path else {**value, name: 1}
                error = told(read, given)
                assert error is not None, (path, name)
                check(error, given)
                assert error.place.endswith(("/color", "/shapes", "/Dtype", "\\n"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"outputs": ["y"]}, r"/outputs/0: expected an object, got the string 'y'"),
        ({"outputs": [None]}, r"/outputs/0: expected an object, got null"),
        ({"outputs": {"node": "y"}}, r"/outputs: expected a list, got an object"),
        ({"inputs": [{"name": "x", "shape": 4, "dtype": "f32"}]}, r"/inputs/0/shape: expected a list, got 4"),
        ({"nodes": [{"name": "y", "op": None}]}, r"/nodes/0/op: expected a string, got null"),
        ({"nodes": [{"name": "y"}]}, r"/nodes/0/op: is missing"),
        ({"nodes": [{"name": "y", "op": "neg", "arg": ["x"]}]}, "/nodes/0/arg: unknown field, .*'args'"),
        (
            {"nodes": [{"name": "y", "ops": "neg"}]},
            "/nodes/0/op: is missing, .* unknown field 'ops', which ",
        ),
        ({"nodes": [{"name": "y", "z": "neg"}]}, "/nodes/0/op: is missing, and there is an unknown field 'z'$"),
        (
            {"inputs": [{"name": "x", "shape": ["N"], "dtype": "f32"}]},
            "/inputs/0/shape/0: .* no symbolic sizes: ",
        ),
        ({"inputs": [{"name": "x", "shape": [-1], "dtype": "f32"}]}, "/inputs/0/shape: .* no symbolic sizes: write "),
        ({"version": "1"}, r"/version: expected 1, got the string '1'"),
        ({"outputs": []}, r"/outputs: expected at least 1 item, got 0"),
    ],
)
def test_words(given: Json, message: str) -> None:
    with pytest.raises(FormatError, match=f"^{message}"):
        from_wire(GRAPH | given)


def test_a_value_of_several_kinds() -> None:
    with pytest.raises(FormatError, match=r"^/values/d0: expected true or false or an integer or a number, got null$"):
        read_side_file('{"values": {"d0": null}}')


def test_models_are_those_that_are_swept() -> None:
    """A member that the models get is one that the sweep has to have."""
    assert GRAPH.keys() == WireGraph.model_fields.keys()
    assert SIDE.keys() == SideModel.model_fields.keys()


def test_every_part_of_python_has_words() -> None:
    """Every class of statements and expressions in `ast` has words, by which a definition that uses it is refused."""

    def kinds(base: type[ast.AST]) -> Iterator[type[ast.AST]]:
        below = [kind for kind in base.__subclasses__() if kind.__module__ == "ast" or kind.__module__ == "_ast"]
        yield from below if below else ()
        for kind in below:
            yield from kinds(kind)

    old = {"Num", "Str", "Bytes", "NameConstant", "Ellipsis"}  # of Python before 3.8
    found = {kind for base in (ast.stmt, ast.expr) for kind in kinds(base) if kind.__name__ not in old}
    newer = {"TypeAlias", "TemplateStr", "Interpolation"}  # of Python after 3.11
    assert {kind.__name__ for kind in found - python_words.KINDS.keys()} <= newer
