"""Names of other systems for our dtypes and ops: every alias leads to a name that exists, and hides none of ours."""

import ast
import inspect

import pytest

from fusion_ir.core import aliases
from fusion_ir.core.aliases import (
    ATTRIBUTE_HINTS,
    COMPOSITES,
    DTYPE_ALIASES,
    DTYPE_HINTS,
    OP_ALIASES,
    OP_HINTS,
    attribute_hint,
    dtype_hint,
    op_hint,
)
from fusion_ir.dtype import DTYPES
from fusion_ir.errors import FormatError
from fusion_ir.formats.json.wire import from_wire
from fusion_ir.formats.json.wire_ops import WIRE_OPS, attribute_name
from fusion_ir.formats.kernel_math.ops import POINTWISE_NAMES
from fusion_ir.formats.kernel_math.tensors import KERNEL_DTYPES
from fusion_ir.formats.migraphx.ops import MIGRAPHX_OPS
from fusion_ir.formats.migraphx.types import MIGRAPHX_DTYPES
from fusion_ir.formats.nvfuser.ops import NVFUSER_OPS
from fusion_ir.formats.nvfuser.values import NVFUSER_DTYPES
from fusion_ir.formats.signature import parameters
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.ops import OPS
from fusion_ir.text.printing import parse_graph, print_graph
from tests.unit.formats.test_json import Wire, node, wire

NAMES = {*OPS, *WIRE_OPS}


def test_every_name_leads_to_something_that_there_is() -> None:
    assert set(DTYPE_ALIASES.values()) <= set(DTYPES)
    assert {name for meant in DTYPE_HINTS.values() for name in meant} <= set(DTYPES)
    assert set(OP_ALIASES.values()) <= NAMES
    assert {name for meant in OP_HINTS.values() for name in meant} <= NAMES
    ours = {attribute_name(p) for function in WIRE_OPS.values() for p in parameters(function)}
    ours |= {name for row in OPS.values() for name in row.attrs}
    ours |= {p.name for function in NVFUSER_OPS.values() for p in parameters(function)}
    assert {name for meant in ATTRIBUTE_HINTS.values() for name in meant} <= ours


def test_no_alias_hides_a_name_of_ours() -> None:
    assert not (DTYPE_ALIASES.keys() | DTYPE_HINTS.keys()) & DTYPES.keys()
    assert not (OP_ALIASES.keys() | OP_HINTS.keys()) & NAMES
    assert not DTYPE_ALIASES.keys() & DTYPE_HINTS.keys()
    assert not OP_ALIASES.keys() & OP_HINTS.keys()


@pytest.mark.parametrize("table", ["DTYPE_ALIASES", "DTYPE_HINTS", "OP_ALIASES", "OP_HINTS", "ATTRIBUTE_HINTS"])
def test_no_name_stands_in_a_table_twice(table: str) -> None:
    """Where a dictionary is written with one key twice, Python keeps the last value without an error."""
    for statement in ast.parse(inspect.getsource(aliases)).body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict(keys=keys)) if name == table:
                names = [key.value for key in keys if isinstance(key, ast.Constant)]
                assert names and len(set(names)) == len(names)
                return
    raise AssertionError(f"there is no table {table}")


def test_composites_are_what_the_wire_has_beyond_the_language() -> None:
    assert set(COMPOSITES) == WIRE_OPS.keys() - OPS.keys()


@pytest.mark.parametrize("alias", DTYPE_ALIASES)
def test_the_wire_reads_dtypes_of_others(alias: str) -> None:
    def read(dtype: str) -> Wire:
        return wire(
            inputs=[{"name": "x", "shape": [4, 8], "dtype": dtype}, {"name": "bias", "shape": [8], "dtype": "f32"}],
            nodes=[node("y", "cast", "x", dtype=dtype), node("z", "cast", "bias", dtype=dtype)],
            outputs=[{"node": "y"}, {"node": "z"}],
        )

    ours, theirs = from_wire(read(DTYPE_ALIASES[alias])), from_wire(read(alias))
    assert graph_key(theirs.graph) == graph_key(ours.graph)
    assert print_graph(theirs) == print_graph(ours)


# Operands and attributes with which each op that has an alias can be made.
CALLS: dict[str, Wire] = {
    "cast": node("y", "cast", "x", dtype="f16"),
    "cat": node("y", "cat", "x", "x", axis=0),
    "clamp": node("y", "clamp", "x", low=0),
    "layer_norm": node("y", "layer_norm", "x"),
    "log_softmax": node("y", "log_softmax", "x"),
    "matmul": node("y", "matmul", "x", "bias"),
    "max": node("y", "max", "x", axes=[0]),
    "min": node("y", "min", "x", axes=[0]),
    "reshape": node("y", "reshape", "x", shape=[8, 4]),
    "rms_norm": node("y", "rms_norm", "x"),
    "transpose": node("y", "transpose", "x", first=0, second=1),
    "unsqueeze": node("y", "unsqueeze", "x", axes=[0]),
    "pow": node("y", "pow", "x", "bias"),
    **{op: node("y", op, "i", "i") for op in ("shift_left", "shift_right", "shift_right_logical")},
    **{op: node("y", op, "x", "bias") for op in ("atan2", "floordiv", "ge", "gt", "le", "lt", "mul", "ne", "sub")},
    "truediv": node("y", "truediv", "x", "bias"),
}


@pytest.mark.parametrize("alias", OP_ALIASES)
def test_the_wire_reads_ops_of_others(alias: str) -> None:
    op = OP_ALIASES[alias]
    inputs = [*wire()["inputs"], {"name": "i", "shape": [4], "dtype": "i32"}]
    call = CALLS.get(op, node("y", op, "x"))
    ours = from_wire(wire(inputs=inputs, nodes=[call], outputs=[{"node": "y"}]))
    theirs = from_wire(wire(inputs=inputs, nodes=[call | {"op": alias}], outputs=[{"node": "y"}]))
    assert theirs.graph == ours.graph


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("float", "'f32' or 'f64'"),
        ("int", "'i32' or 'i64'"),
        ("byte", "'u8' or 'i8'"),
        ("torch.bfloat16", "'bf16'"),
        ("jax.numpy.float32", "'f32'"),
        ("FLOAT16", "'f16'"),
        ("uint8_t", "'u8'"),
        ("float8_e4m3", "'f8e4m3'"),
        ("bf61", "'bf16'"),
    ],
)
def test_dtypes_that_are_meant(name: str, meant: str) -> None:
    assert dtype_hint(name, DTYPES) == f"; did you mean {meant}?"
    with pytest.raises(FormatError, match=r"^/inputs/0/dtype: expected 'f64', ") as caught:
        from_wire(wire(inputs=[{"name": "x", "shape": [4, 8], "dtype": name}, wire()["inputs"][1]]))
    assert caught.value.reason.endswith(f"; did you mean {meant}?")


@pytest.mark.parametrize("alias", [*DTYPE_ALIASES, *DTYPE_HINTS])
def test_the_text_says_which_dtype_is_meant(alias: str) -> None:
    meant = DTYPE_HINTS.get(alias) or (DTYPE_ALIASES[alias],)
    text = f"fuseplan.graph 1\nin0 x: {alias}[4] align 16\n%0 = in0: f32[4]\nout0: %0\n"
    with pytest.raises(FormatError, match=r"^2:8: expected a dtype .*; did you mean ") as caught:
        parse_graph(text)
    assert all(f"'{name}'" in caught.value.reason for name in meant)


@pytest.mark.parametrize(("name", "meant"), [*OP_HINTS.items(), ("torch.mul", ("mul",)), ("aten::add_", ("add",))])
def test_ops_that_may_be_meant(name: str, meant: tuple[str, ...]) -> None:
    with pytest.raises(FormatError, match=r"^/nodes/0/op: unknown op ") as caught:
        from_wire(wire(nodes=[node("y", name, "x")]))
    assert caught.value.reason.endswith(f"; did you mean {' or '.join(repr(m) for m in meant)}?")


@pytest.mark.parametrize("alias", OP_ALIASES)
def test_the_text_says_which_op_is_meant(alias: str) -> None:
    text = f"fuseplan.graph 1\nin0 x: f32[4] align 16\n%0 = in0: f32[4]\n%1 = {alias}(%0): f32[4]\nout0: %1\n"
    with pytest.raises(FormatError, match=rf"^4:6: unknown op '{alias}'") as caught:
        parse_graph(text)
    meant = OP_ALIASES[alias]
    assert (f"'{meant}'?" if meant in OPS else f"{meant} is made of several") in caught.value.reason


def test_the_text_says_what_a_composite_is() -> None:
    text = "fuseplan.graph 1\nin0: f32[4] align 16\n%0 = in0: f32[4]\n%1 = softmax(%0): f32[4]\nout0: %1\n"
    with pytest.raises(FormatError, match=r"^4:6: unknown op 'softmax': this text has the ops of the language alone"):
        parse_graph(text)


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("swish", NVFUSER_OPS, "'silu'"),
        ("concatenate", NVFUSER_OPS, "'cat'"),
        ("multiply", NVFUSER_OPS, "'mul'"),
        ("cat", MIGRAPHX_OPS, "'concat'"),
        ("reciprocal", MIGRAPHX_OPS, "'recip'"),
        ("round", MIGRAPHX_OPS, "'nearbyint'"),
        ("matmul", MIGRAPHX_OPS, "'dot'"),
        ("absolute", POINTWISE_NAMES, "'abs'"),
    ],
)
def test_ops_of_other_formats(name: str, known: dict[str, object], meant: str) -> None:
    assert op_hint(name, known) == f"; did you mean {meant}?"


@pytest.mark.parametrize("alias", ["bfloat16", "float32", "half", "torch.int64", "bool_", "f8e4m3"])
def test_dtypes_of_other_formats(alias: str) -> None:
    others = {"bfloat16": "bf16", "float32": "f32", "half": "f16", "torch.int64": "i64", "bool_": "bool"}
    meant = others.get(alias, alias)
    for spelled in (NVFUSER_DTYPES, MIGRAPHX_DTYPES, {word: dtype.name for word, dtype in KERNEL_DTYPES.items()}):
        theirs = next(word for word, ours in spelled.items() if ours == meant)
        assert dtype_hint(alias, spelled, spelled) == f"; did you mean {theirs!r}?"


def test_attributes_that_are_meant() -> None:
    assert attribute_hint("dim", ["axis"]) == "; did you mean 'axis'?"
    assert attribute_hint("keepdim", ["axes", "keepdims"]) == "; did you mean 'keepdims'?"
    assert attribute_hint("axes", ["x", "dims", "dim"]) == "; did you mean 'dims' or 'dim'?"
    assert attribute_hint("colour", ["axis"]) == ""
