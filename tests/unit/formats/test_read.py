"""The table of readers: how a format is recognised, and that every example is read as it was before."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import cast

import jsonschema
import pytest

from fusion_ir.core.aliases import DTYPE_ALIASES, OP_ALIASES
from fusion_ir.core.named import NamedGraph
from fusion_ir.dtype import DTYPES
from fusion_ir.errors import FormatError
from fusion_ir.formats import READERS, SideFile, read
from fusion_ir.formats.json.schema import SCHEMA_PATH, graph_schema, schema_text
from fusion_ir.formats.json.wire import to_wire
from fusion_ir.formats.json.wire_ops import WIRE_OPS
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.ops import OPS
from fusion_ir.text.printing import print_graph
from fusion_ir.verify import verify
from tests.support.small_graphs import random_graph
from tests.support.whole import some
from tests.unit.formats.test_json import BAD, Wire

ROOT = Path(__file__).parents[3]
EXAMPLES = {p.name: p for p in sorted((ROOT / "examples").iterdir()) if p.suffix != ".md"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, golden: Callable[[str, str], None]) -> None:
    """The canonical text, with names. A change here changes keys: plans that are stored are not found again."""
    named = read(EXAMPLES[name].read_bytes(), filename=name)
    verify(named.graph)
    golden(f"{name.partition('.')[0]}.txt", print_graph(named))


def test_examples_are_described() -> None:
    text = (ROOT / "examples" / "README.md").read_text()
    for path in (ROOT / "examples").iterdir():
        assert path.name == "README.md" or f"`{path.name}`" in text


def test_formats_are_described() -> None:
    text = (ROOT / "docs" / "formats.md").read_text()
    for reader in READERS:
        assert f"`{reader.name}`" in text
    for op in {*OPS, *WIRE_OPS}:
        assert f"`{op}`" in text, f"docs/formats.md does not mention {op}"
    for alias in {**DTYPE_ALIASES, **OP_ALIASES}:
        assert f"`{alias}`" in text, f"docs/formats.md does not mention {alias}"


@pytest.mark.parametrize("name", EXAMPLES)
def test_one_graph_in_three_formats(name: str) -> None:
    named = read(EXAMPLES[name].read_text())
    for text in (json.dumps(to_wire(named)), print_graph(named), "\n \n" + print_graph(named)):
        again = read(text)
        assert graph_key(again.graph) == graph_key(named.graph)
        assert again.input_names == named.input_names
        assert again.output_names == named.output_names


def test_format_is_what_is_asked_for() -> None:
    with pytest.raises(FormatError, match=r"^1:1: expected the header"):
        read("{}", format="text")
    with pytest.raises(FormatError, match=r"^format: unknown format 'onnx', expected one of \['text', "):
        read("{}", format="onnx")


@pytest.mark.parametrize(
    ("text", "filename", "message"),
    [
        ("", None, "1:1: the format is not recognised from ''"),
        ("hello", None, "1:1: the format is not recognised from 'hello', expected one of these: text: "),
        ("hello", "graph.json", "1:1: not JSON"),
        ("hello", "graph.py", "1:1: expected a definition"),
        (b"\xff", None, "1:1: byte 0xff is not UTF-8"),
        (b" " * 60 * 10**6, None, "the body has 60,000,000 bytes"),
    ],
)
def test_not_recognised(text: str | bytes, filename: str | None, message: str) -> None:
    with pytest.raises(FormatError, match=f"^{message}"):
        read(text, filename=filename)


def test_side_files_are_for_formats_that_leave_something_open() -> None:
    with pytest.raises(FormatError, match=r"^shapes/inputs: format json takes nothing, as it states all sizes itself"):
        read(EXAMPLES["swiglu.json"].read_text(), beside=SideFile(shapes={"gate_up": (1, 2)}))
    text = "def f(fd):\n  x = fd.define_tensor(shape=[-1], dtype=DataType.Float)\n  fd.add_output(x)"
    assert read(text, beside=SideFile(shapes={"x": (5,)})).graph.inputs[0].sizes == (5,)
    with pytest.raises(FormatError, match=r"^shapes/extents: format nvfuser takes only inputs, values beside it"):
        read(text, beside=SideFile(extents={"i0": 5}))
    with pytest.raises(FormatError, match=r"^shapes/inputs/x/dtype: bf16 is given, but the text says f32"):
        read(text, beside=SideFile(shapes={"x": (5,)}, dtypes={"x": DTYPES["bf16"]}))


# The published schema


def test_schema_is_up_to_date() -> None:
    assert SCHEMA_PATH.read_text() == schema_text(), "run python -m fusion_ir.formats.json.schema > " + str(SCHEMA_PATH)


@pytest.mark.soak
def test_schema_accepts_what_is_written() -> None:
    validator = jsonschema.Draft202012Validator(graph_schema())
    jsonschema.Draft202012Validator.check_schema(graph_schema())
    for path in EXAMPLES.values():
        if path.suffix == ".json":
            validator.validate(json.loads(path.read_text()))
    for seed in some(range(60), 20, "schema"):
        validator.validate(to_wire(NamedGraph.unnamed(random_graph(seed))))


@pytest.mark.parametrize(
    "case",
    [
        "other version",
        "unknown field",
        "string as number",
        "unknown dtype",
        "unknown op",
        "unknown attribute",
        "too many operands",
    ],
)
def test_schema_refuses(case: str) -> None:
    assert not jsonschema.Draft202012Validator(graph_schema()).is_valid(cast(Wire, BAD[case][0]))
