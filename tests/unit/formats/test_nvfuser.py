"""nvFuser's Python definitions: both spellings, layouts, numbers, and what is refused with line and column."""

import inspect
import re
from pathlib import Path

import pytest

from fusion_ir import building as build
from fusion_ir.core.extent import shape_of
from fusion_ir.core.graph import InputSpec
from fusion_ir.core.limits import LIMITS
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, bool_, f32, f64, i32, i64
from fusion_ir.errors import FormatError
from fusion_ir.formats.nvfuser.ops import NVFUSER_OPS
from fusion_ir.formats.nvfuser.reader import read_nvfuser
from fusion_ir.formats.signature import parameters
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.ops import make_input

ROPE = (Path(__file__).parents[3] / "examples" / "mistral_rope_forward.nvfuser.py").read_text()


def definition(*lines: str, shape: str = "[4, 8]", dtype: str = "Float", output: str = "T1") -> str:
    """A definition with inputs T0 and X of the same kind, the lines, and one output."""
    tensor = f"fd.define_tensor(shape={shape}, contiguity=True, dtype=DataType.{dtype})"
    body = [f"T0 = {tensor}", f"X = {tensor}", *lines, f"fd.add_output({output})"]
    return "def nvfuser_fusion_id0(fd : FusionDefinition) -> None :\n" + "".join(f"    {line}\n" for line in body)


def result(*lines: str, shape: str = "[4, 8]", dtype: str = "Float", output: str = "T1") -> Node:
    return read_nvfuser(definition(*lines, shape=shape, dtype=dtype, output=output)).graph.outputs[0].node


def tensor_spec(arguments: str, **given: dict[str, list[int]]) -> InputSpec:
    text = f"def f(fd):\n    T0 = fd.define_tensor({arguments})\n    fd.add_output(T0)\n"
    return read_nvfuser(text, **given).graph.inputs[0]


# The module of the shared example


def test_rope_names_and_layouts() -> None:
    named = read_nvfuser(ROPE)
    assert named.input_names == ("T0", "T1", "T2", "T3", "T4")
    assert named.output_names == ("T29", "T31", "T51", "T76", "T81")
    assert [s.dtype for s in named.graph.inputs] == [bf16] * 4 + [i64]
    assert all(spec.is_dense for spec in named.graph.inputs)
    assert [o.node.sizes for o in named.graph.outputs][2:] == [(1, 32, 4096, 128)] * 3


def test_newer_spelling_gives_the_same_graph() -> None:
    """tv0 for T0, nvfuser_fusion, imports before it, vectors, broadcast and expand, defaults left out."""
    lines: list[str] = ["import torch", "from nvfuser_direct import FusionDefinition, DataType", ""]
    for number, line in enumerate(ROPE.splitlines()):
        line = re.sub(r"\bT(\d+)\b", r"tv\1", line.replace("nvfuser_fusion_id0", "nvfuser_fusion"))
        line = line.replace(", manual_normalization=0", "").replace("is_cpu=False, ", "")
        if "reshape" in line:
            head, _, sizes = line.partition("new_shape=")
            lines.append(f"    c{number} = fd.define_vector({sizes[:-1]}, dtype=DataType.Int)")
            line = f"{head}new_shape=c{number})"
        if line.lstrip().startswith("tv11 "):
            line = "    tv11 = fd.ops.broadcast(tv3, is_broadcast_dim=[True, False, True])"
        if line.lstrip().startswith("tv73 "):
            line = "    tv73 = fd.ops.expand(tv70, shape=[1, 8, 4, 4096, 128])"
        lines.append(line)
    text = "\n".join(lines)
    assert "tv5" in text
    assert graph_key(read_nvfuser(text).graph) == graph_key(read_nvfuser(ROPE).graph)


# Layouts


@pytest.mark.parametrize(
    ("arguments", "strides"),
    [
        ("shape=[4, 8], contiguity=[True, True], dtype=DataType.Float", (8, 1)),
        ("shape=[4, 8], contiguity=[True, True], dtype=DataType.Float, stride_order=[1, 0]", (8, 1)),
        ("shape=[4, 8], contiguity=[True, True], dtype=DataType.Float, stride_order=[0, 1]", (1, 4)),
        ("shape=[4, 8], contiguity=True, dtype=DataType.Float", (8, 1)),
        ("shape=[4, 8], contiguity=[None, True], dtype=DataType.Float", (0, 1)),
        ("shape=[4, 8], contiguity=[True, None], dtype=DataType.Float", (1, 0)),
        ("shape=[4, 1, 8], contiguity=[True, None, True], dtype=DataType.Float", (8, 8, 1)),
        (
            "shape=[2, 3, 1, 4], contiguity=[True, True, None, True], dtype=DataType.Float, stride_order=[3, 0, 1, 2]",
            (12, 1, 4, 3),
        ),
        ("shape=[1, 8], contiguity=[False, True], dtype=DataType.Float", (8, 1)),
        ("shape=[], contiguity=[], dtype=DataType.Float", ()),
        ("shape=[0, 8], contiguity=[True, True], dtype=DataType.Float", (8, 1)),
        ("sizes=[4, 8], strides=[16, 2], dtype=DataType.Float, is_cpu=False", (16, 2)),
        ("shape=[4, 8], dtype=DataType.Float", (8, 1)),
        # the example of nvFuser's own note on stride order and contiguity, made dense
        (
            "shape=[2, 3, 1, 5, 4], contiguity=[True, None, True, True, None], dtype=DataType.Float, "
            "stride_order=[4, 2, 3, 0, 1]",
            (12, 4, 20, 0, 1),
        ),
    ],
)
def test_strides(arguments: str, strides: tuple[int, ...]) -> None:
    assert tensor_spec(arguments).strides == strides


def test_what_the_text_leaves_open_is_given_beside_it() -> None:
    symbolic = "shape=[-1, 8], contiguity=[True, True], dtype=DataType.Float"
    assert tensor_spec(symbolic, sizes={"T0": [4, 8]}).sizes == (4, 8)
    gaps = "shape=[4, 8], contiguity=[False, True], dtype=DataType.Float"
    assert tensor_spec(gaps, strides={"T0": [32, 1]}).strides == (32, 1)


@pytest.mark.parametrize(
    ("arguments", "given", "message"),
    [
        (
            "shape=[-1, 8], contiguity=[True, True], dtype=DataType.Float",
            {},
            r"2:33: axis 0 of T0 has a symbolic extent \(-1\)",
        ),
        (
            "shape=[-1, 8], dtype=DataType.Float",
            {"sizes": {"T0": [4, 9]}},
            "2:33: axis 1 of T0 has extent 8, but 9 is given",
        ),
        ("shape=[-1, 8], dtype=DataType.Float", {"sizes": {"T0": [4]}}, "2:33: T0 has rank 2, but 1 sizes are given"),
        ("shape=[4, 8], dtype=DataType.Float", {"sizes": {"T9": [4]}}, "sizes: 'T9' is no input of the definition"),
        ("shape=[-2, 8], dtype=DataType.Float", {}, "2:33: axis 0 has extent -2"),
        ("shape=[4, 8], contiguity=[False, True], dtype=DataType.Float", {}, "2:52: axis 0 of T0 is not contiguous"),
        ("shape=[4, 8], contiguity=[True, False], dtype=DataType.Float", {}, "2:52: axis 1 of T0 is not contiguous"),
        (
            "shape=[4, 8], contiguity=[True], dtype=DataType.Float",
            {},
            "2:52: argument contiguity: expected a list of 2 times",
        ),
        (
            "shape=[4, 8], contiguity=[True, 1], dtype=DataType.Float",
            {},
            "2:52: argument contiguity: expected a list of 2",
        ),
        (
            "shape=[4, 8], stride_order=[1, 1], dtype=DataType.Float",
            {},
            r"2:54: stride_order \[1, 1\] is no permutation",
        ),
        ("shape=[4, 8], strides=[4, 1], dtype=DataType.Float", {}, "2:49: strides overlap"),
        ("shape=[4, 8], strides=[-8, 1], dtype=DataType.Float", {}, "2:49: axis 0 has negative stride"),
        ("shape=[4, 8], dtype=None", {}, "2:10: fd.define_tensor: argument dtype: expected a DataType, got None"),
        ("shape=[4, 8], dtype=DataType.Null", {}, "2:10: fd.define_tensor: argument dtype: expected a DataType"),
        (
            "shape=[4, 8], dtype=DataType.ComplexFloat",
            {},
            "2:47: unknown 'DataType.ComplexFloat', expected one of DataType.Double",
        ),
        ("shape=[4, 8], dtype=torch.float", {}, "2:47: unknown 'torch.float'"),
        ("dtype=DataType.Float", {}, "2:10: fd.define_tensor: argument shape is missing"),
        ("shape=4, dtype=DataType.Float", {}, "2:33: argument shape: expected a list of integers, got 4"),
        ("shape=[4, True], dtype=DataType.Float", {}, "2:33: argument shape: expected integers, got True"),
        ("shape=[4, 8], dtype=DataType.Float, device=0", {}, "2:70: fd.define_tensor has no argument 'device'"),
        ("shape=[1]*99, dtype=DataType.Float", {}, "2:33: rank 99 is above the limit of 12"),
        (f"shape={[1] * 13}, dtype=DataType.Float", {}, "2:33: rank 13 is above the limit of 12"),
        (f"shape=[{2**62}, 8], dtype=DataType.Float", {}, "2:33: shape .* at most 1099511627776"),
        (f"shape=[{2**63}, 8], dtype=DataType.Float", {}, "2:34: the integer does not fit 64 bits"),
    ],
)
def test_layouts_refused(arguments: str, given: dict[str, dict[str, list[int]]], message: str) -> None:
    with pytest.raises(FormatError, match=f"^{message}"):
        tensor_spec(arguments, **given)


# Ops

SPEC = InputSpec(shape_of((4, 8)), f32, (8, 1))
_t, _x = make_input(0, SPEC), make_input(1, SPEC)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("T1 = fd.ops.add(T0, X)", build.add(_t, _x)),
        ("T1 = fd.ops.mul(T0, 2.5)", build.mul(_t, 2.5)),
        ("T1 = fd.ops.sub(1.0, T0)", build.sub(1.0, _t)),
        ("T1 = fd.ops.broadcast(T0, is_broadcast_dim=[False, True, False])", build.unsqueeze(_t, 1)),
        ("T1 = fd.ops.expand(T0, shape=[4, -1])", _t),
        ("T1 = fd.ops.broadcast_in_dim(T0, shape=[2, 4, 8], broadcast_dims=[1, 2])", build.broadcast_to(_t, [2, 4, 8])),
        (
            "T1 = fd.ops.slice(T0, start_indices=[1, 0], end_indices=[4, 8], strides=[2, 1])",
            build.slice_(_t, [1, 0], [4, 8], [2, 1]),
        ),
        ("T1 = fd.ops.slice(T0, start_indices=[0, 4], end_indices=[4, 8])", build.slice_(_t, [0, 4], [4, 8])),
        ("T1 = fd.ops.pad(T0, [1, 2], 0.0)", build.pad(_t, [0, 1], [0, 2])),
        ("T1 = fd.ops.pad(T0, [1, 2, 3, 4], 5)", build.pad(_t, [3, 1], [4, 2], 5)),
        ("T1 = fd.ops.pad(T0, [0, -2])", build.pad(_t, [0, 0], [0, -2])),
        ("T1 = fd.ops.cat([T0, X], dim=-1, manual_padding=0)", build.cat([_t, _x], 1)),
        ("T1 = fd.ops.cat([T0, X], 0)", build.cat([_t, _x], 0)),
        ("T1 = fd.ops.sum(T0, dims=[1], keepdim=True, dtype=DataType.Null)", build.sum_(_t, [1], True)),
        ("T1 = fd.ops.sum(T0, dims=[0], dtype=DataType.Double)", build.sum_(build.cast(_t, f64), [0])),
        ("T1 = fd.ops.max(T0, dims=[0, 1])", build.max_(_t)),
        ("T1 = fd.ops.var(T0, dims=[1], correction=0, keepdim=True)", build.var(_t, [1], 0, True)),
        ("T1 = fd.ops.iota(8, 2, 3, DataType.Int32)", build.iota([8], 0, 2, 3, i32)),
        ("T1 = fd.ops.full(shape=[2], fill_value=True, dtype=DataType.Bool)", build.full([2], True, bool_)),
        ("T1 = fd.ops.cast(T0, DataType.BFloat16)", build.cast(_t, bf16)),
        ("T1 = fd.ops.clamp(T0, None, 6.0)", build.clamp(_t, None, 6.0)),
        ("T1 = fd.ops.mod(T0, X)", build.fmod(_t, _x)),
        ("T1 = fd.ops.pow(T0, 2)", build.square(_t)),
        ("T1 = fd.ops.truediv(T0, X)", build.div(_t, _x)),
        ("T1 = fd.ops.set(T0)", _t),
        ("T1 = fd.ops.linear(T0, X)", build.linear(_t, _x)),
        ("T1 = fd.ops.linear(T0, X, None)", build.linear(_t, _x)),
        ("T1 = fd.ops.squeeze(T0, dims=[])", _t),
        ("T1 = fd.ops.threshold(T0, 0.5, 0)", build.threshold(_t, 0.5, 0)),
        ("T1 = fd.ops.addcmul(T0, X, X, 2)", build.add(_t, build.mul(_x, build.mul(_x, 2)))),
    ],
)
def test_ops(line: str, expected: Node) -> None:
    assert result(line) is expected


def test_scalars_and_vectors() -> None:
    scalar = "S = fd.define_scalar(1e-05, dtype=DataType.Double)"
    assert result(scalar, "T1 = fd.ops.add(T0, S)") is build.add(_t, 1e-5)
    assert result('S = fd.define_scalar(float("-inf"), dtype=DataType.Double)', "T1 = fd.ops.add(T0, S)") is build.add(
        _t, float("-inf")
    )
    assert result(
        "V = fd.define_vector([2, 16], dtype=DataType.Int)", "T1 = fd.ops.reshape(T0, new_shape=V)"
    ).sizes == (2, 16)
    sizes = ("S = fd.define_scalar(16)", "T1 = fd.ops.reshape(T0, new_shape=[2, S])")
    assert result(*sizes).sizes == (2, 16)
    shape = (
        "V = fd.ops.shape(T0)",
        "A = fd.ops.at(V, index=1)",
        "B = fd.ops.size(T0, dim=0)",
        "T1 = fd.ops.reshape(T0, new_shape=[A, B])",
    )
    assert result(*shape).sizes == (8, 4)


def test_a_double_scalar_promotes_integers_alone() -> None:
    line = "T1 = fd.ops.mul(T0, S)"
    assert result("S = fd.define_scalar(2.0, dtype=DataType.Double)", line, dtype="BFloat16").dtype == f32
    assert result("S = fd.define_scalar(2.5, dtype=DataType.Double)", line, dtype="Int").dtype == f64


def test_several_results() -> None:
    lines = ("T1, T2 = fd.ops.var_mean(T0, dims=[1], correction=1, keepdim=False)", "T3 = fd.ops.sub(T1, T2)")
    assert result(*lines, output="T3") is build.sub(*build.var_mean(_t, [1], 1))
    lines = ("A, B, C = fd.ops.welford(T0, dims=[1])",)
    assert result(*lines, output="C") is build.full([4], 8, i64)
    assert result(*lines, output="A") is build.mean(_t, [1])


def test_outputs() -> None:
    text = definition(
        "T1 = fd.ops.add(T0, X)",
        "T2 = fd.ops.stride_order(T1, stride_order=[0, 1])",
        "fd.add_output(T1)",
        "fd.add_output(T2)",
        "fd.add_output(T1, alias_input=X)",
        "fd.add_output(T1, stride_order=[0, 1])",
    )
    named = read_nvfuser(text)
    assert named.output_names == ("T1", "T2", "T1_3", "T1_4", "T1_5")
    assert [o.strides for o in named.graph.outputs] == [(8, 1), (1, 4), (8, 1), (1, 4), (8, 1)]
    assert [o.donates for o in named.graph.outputs] == [None, None, 1, None, None]


def test_every_op_has_a_signature_that_text_can_give() -> None:
    for name, function in NVFUSER_OPS.items():
        assert parameters(function), name
        assert all(p.kind not in ("str", "scalar", "sizes") for p in parameters(function)), name
        assert inspect.signature(function)


# What is refused

BAD: dict[str, tuple[str, str]] = {
    "unknown op": ("T1 = fd.ops.sigmiod(T0)", "4:10: unknown op 'sigmiod'; did you mean 'sigmoid'"),
    "op without counterpart": ("T1 = fd.ops.argsort(T0, dim=0)", "4:10: unknown op 'argsort'"),
    "unknown call": (
        "T1 = fd.define_tensors(T0)",
        "4:10: unknown call 'fd.define_tensors'; did you mean 'fd.define_tensor'",
    ),
    "call of PyTorch": (
        "T1 = fd.from_pytorch(T0)",
        "4:10: unknown call 'fd.from_pytorch', expected fd.ops.NAME or one of fd.define_tensor, fd.define_scalar, "
        "fd.define_vector, fd.add_output",
    ),
    "op without ops": ("T1 = fd.relu(T0)", "4:10: unknown call 'fd.relu'; did you mean 'fd.ops.relu'?"),
    "not defined": ("T1 = fd.ops.add(T0, T7)", "4:25: 'T7' is not defined before this line"),
    "defined later": ("T1 = fd.ops.add(T0, T1)", "4:25: 'T1' is not defined before this line"),
    "too few": ("T1 = fd.ops.add(T0)", "4:10: fd.ops.add: argument y is missing"),
    "too many": ("T1 = fd.ops.add(T0, X, X)", "4:28: fd.ops.add takes 2 arguments, got 3"),
    "unknown argument": ("T1 = fd.ops.sum(T0, axes=[1])", "4:30: fd.ops.sum has no argument 'axes', expected"),
    "argument twice": (
        "T1 = fd.ops.cast(T0, DataType.Float, dtype=DataType.Float)",
        "4:48: fd.ops.cast: argument dtype is given twice",
    ),
    "number for a tensor": ("T1 = fd.ops.permute(2, dims=[0])", "4:25: argument x: expected a tensor, got 2"),
    "tensor for integers": (
        "T1 = fd.ops.permute(T0, dims=X)",
        r"4:34: argument dims: expected a list of integers, got a tensor f32\[4, 8\]",
    ),
    "shapes": ("T1 = fd.ops.matmul(T0, X)", r"4:10: matmul: \[4, 8\] @ \[4, 8\] sums over 8 and 4"),
    "permutation": ("T1 = fd.ops.permute(T0, dims=[0, 0])", "4:10: permute: dims"),
    "results": ("T1, T2 = fd.ops.add(T0, X)", "4:14: fd.ops.add has 1 result, assigned to 2 names"),
    "results dropped": ("fd.ops.add(T0, X)", "4:5: fd.ops.add has 1 result, assigned to 0 names"),
    "symbolic scalar": (
        "S = fd.define_scalar(None, dtype=DataType.Double)",
        "4:9: 'S' has no value in the text",
    ),
    "scalar out of range": ("S = fd.define_scalar(1.5, dtype=DataType.Int)", "4:9: 1.5 is not a value of i64"),
    "output of a number": ("fd.add_output(3)", "4:5: expected a tensor to put out, got 3"),
    "alias of no input": (
        "T1 = fd.ops.neg(T0)\n    fd.add_output(T1, alias_input=T1)",
        "5:35: argument alias_input: expected an input",
    ),
    "alias of another shape": (
        "T1 = fd.ops.sum(T0, dims=[0])\n    fd.add_output(T1, alias_input=T0)",
        "5:5: an output takes over a buffer like its own: T1 is .*, T0 is ",
    ),
    "__import__": (
        "T1 = __import__('os').system('true')",
        "4:10: a call is not allowed here|4:10: .*, expected a call of fd.NAME",
    ),
    "__import__ as argument": ("T1 = fd.ops.neg(__import__('os'))", "4:21: a call of '__import__' is not allowed here"),
    "__class__": ("T1 = fd.__class__.__bases__()", "4:10: a call of 'fd.__class__.__bases__' is not allowed here"),
    "dunder op": ("T1 = fd.ops.__init__(T0)", "4:10: unknown op '__init__'"),
    "call of another": ("T1 = eval('1')", "4:10: .* is not allowed here, expected a call of fd.NAME"),
    "lambda": ("T1 = fd.ops.neg(lambda: T0)", "4:21: a lambda is not allowed here"),
    "comprehension": ("T1 = fd.ops.reshape(T0, [i for i in (4, 8)])", "4:29: a comprehension is not allowed here"),
    "f-string": ("T1 = fd.ops.neg(f'{T0}')", "4:21: an f-string is not allowed here"),
    "string": ("T1 = fd.ops.neg('T0')", "4:21: this constant is not allowed here"),
    "float of something": ("T1 = fd.ops.mul(T0, float('1e3'))", "4:25: float.'1e3'.: expected one of"),
    "starred": ("T1 = fd.ops.neg(*T0)", "4:21: a starred value is not allowed here"),
    "double starred": ("T1 = fd.ops.neg(**T0)", r"4:23: \*\* is not read"),
    "subscript": ("T1 = fd.ops.neg(T0[0])", "4:21: argument vector: expected a list of integers, got a tensor"),
    "arithmetic": (
        "T1 = fd.ops.mul(T0, T0 // 2)",
        r"4:25: arithmetic .* write fd\.ops\.floor\(fd\.ops\.truediv\(T0, 2\)\)",
    ),
    "walrus": ("T1 = fd.ops.neg((a := 1))", "4:22: an assignment expression is not allowed here"),
    "loop": ("for i in T0: pass", "4:5: a loop is not allowed here"),
    "with": ("with T0: pass", "4:5: a with statement is not allowed here"),
    "function inside": ("def g(): pass", "4:5: another function is not allowed here"),
    "import inside": ("import os", "4:5: an import is not allowed here"),
    "attribute target": ("fd.x = fd.ops.neg(T0)", "4:5: this assignment is not allowed here"),
    "complex": ("T1 = fd.ops.mul(T0, 1j)", "4:25: this constant is not allowed here"),
    "huge integer": (f"T1 = fd.ops.mul(T0, {10**30})", "4:25: the integer does not fit 64 bits"),
    "5000 digits": (f"T1 = fd.ops.mul(T0, {'9' * 5000})", "4:.*: not Python: Exceeds the limit"),
    "1e999": ("T1 = fd.ops.mul(T0, 1e999)", "4:25: the number is too large for 64 bits; infinity is written"),
    "nested lists": ("T1 = fd.ops.cat([[[[T0]]]])", "4:21: argument tensors: expected a list of tensors"),
    "syntax": ("T1 = fd.ops.neg(T0", r"4:20: not Python: '\(' was never closed"),
    "null byte": ("T1 = \x00", "not Python|1:1: not Python"),
    "beyond 2^40": (
        f"T1 = fd.ops.broadcast_in_dim(T0, shape=[{2**38}, 4, 8], broadcast_dims=[1, 2])",
        "4:10: shape .* at most",
    ),
    "long name": (f"{'T' * 257} = fd.ops.neg(T0)", "4:.*: a name has 1 to 256 characters"),
}


@pytest.mark.parametrize("case", BAD)
def test_refused(case: str) -> None:
    line, message = BAD[case]
    with pytest.raises(FormatError, match=f"(?s)^({message})") as caught:
        read_nvfuser(definition(line, output="T0"))
    assert len(str(caught.value)) < 1000
    read_nvfuser(definition("T1 = fd.ops.neg(T0)"))


HEADS: dict[str, tuple[str, str]] = {
    "decorator": ("@x\ndef f(fd): pass", "1:2: .* is not allowed here, expected no decorators"),
    "default": ("def f(fd=1): pass", "1:10: .* expected no default arguments"),
    "keyword default": ("def f(fd, *, a=print()): pass", "the definition has no outputs"),
    "two parameters": ("def f(fd, x): pass", "the definition has no outputs"),
    "no parameter": ("def f(): pass", "1:1: expected a parameter, such as 'fd: FusionDefinition'"),
    "annotation": ("def f(fd: print()): pass", "the definition has no outputs"),
    "async": ("async def f(fd): pass", "1:1: expected a definition"),
    "class": ("class F: pass", "1:1: expected a definition"),
    "two functions": ("def f(fd): pass\ndef g(fd): pass", "2:1: lines 1 and 2 begin a definition each, expected one"),
    "other import": ("import os\ndef f(fd): pass", "the definition has no outputs"),
    "import from": ("from os import system\ndef f(fd): pass", "the definition has no outputs"),
    "expression": ("print(1)", "1:1: expected a definition"),
    "empty": ("", "1:1: expected a definition"),
    "no outputs": ("def f(fd): pass", "the definition has no outputs"),
    "deep brackets": ("def f(fd):\n  T = fd.ops.neg(" + "[" * 10000 + "]" * 10000 + ")", r"\d+:\d+: not (Python|read)"),
    "deep signs": ("def f(fd):\n  T = fd.ops.neg(" + "-" * 50000 + "1)", r"\d+:\d+: not (Python|read)"),
    "deep attributes": ("def f(fd):\n  T = fd" + ".a" * 50000 + "()", r"\d+:\d+: not (Python|read)"),
    "deep calls": ("def f(fd):\n  T = fd" + "()" * 50000, r"\d+:\d+: not (Python|read)"),
    "many names": ("a\n" * 200_000, r"the text has 200,000 marks and spaces, at most 150,000"),
    "lone surrogate": ("def f(fd):\n  \ud800 = 1", "2:3: lone surrogate"),
    "indentation": ("def f(fd):\npass", r"2:\d+: not Python"),
}


@pytest.mark.parametrize("case", HEADS)
def test_heads_refused(case: str) -> None:
    text, message = HEADS[case]
    with pytest.raises(FormatError, match=f"(?s)^{message}"):
        read_nvfuser(text)


def test_nothing_is_executed(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    text = f"def f(fd, x=open({str(canary)!r}, 'w')): pass\nopen({str(canary)!r}, 'w')"
    with pytest.raises(FormatError):
        read_nvfuser(text)
    assert not canary.exists()


def test_body_limit() -> None:
    with pytest.raises(FormatError, match=r"^the body has"):
        read_nvfuser(" " * (LIMITS.body_bytes + 1))
