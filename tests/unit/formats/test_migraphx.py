"""MIGraphX program dumps: the excerpt of the shared example, names without definition, layouts, outputs, modules."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fusion_ir.core.named import NamedGraph
from fusion_ir.dtype import bf16, bool_, f16, f32, i8, i64
from fusion_ir.errors import FormatError
from fusion_ir.formats import read
from fusion_ir.formats.migraphx.reader import read_migraphx
from fusion_ir.formats.side_file import SideFile
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.reference.interpreter import interpret
from fusion_ir.verify import verify

EXCERPT = (Path(__file__).parents[3] / "examples" / "distilgpt2_attention_tail.migraphx.txt").read_text()


def lines(*text: str) -> str:
    return "".join(line + "\n" for line in text)


def run(named: NamedGraph, *arrays: np.ndarray) -> list[np.ndarray]:
    verify(named.graph)
    return interpret(named.graph, arrays)


def strides(named: NamedGraph) -> list[tuple[int, ...]]:
    return [o.strides for o in named.graph.outputs]


# The excerpt: P (Y A + b) C, with a slice of the heads and a split of them between the products


def test_excerpt_names_and_types() -> None:
    named = read(EXCERPT)
    verify(named.graph)
    assert named.input_names == ("main:@literal:6", "main:@literal:73", "@20", "@32", "main:@literal:72")
    assert named.output_names == ("@41",)
    specs = named.graph.inputs
    assert [s.sizes for s in specs] == [(348, 2304), (768, 2304), (348, 768), (1, 12, 348, 348), (768, 768)]
    assert {s.dtype for s in specs} == {f16}
    assert all(s.is_dense for s in specs)
    assert [s.constant for s in specs] == ["main:@literal:6", "main:@literal:73", None, None, "main:@literal:72"]
    (output,) = named.graph.outputs
    assert (output.node.sizes, output.node.dtype, output.is_dense) == ((348, 768), f16, True)


def excerpt_by_hand(arrays: Sequence[np.ndarray], first_head: int) -> tuple[np.ndarray, np.ndarray]:
    """The excerpt in float64, and how far results may be from it that round to f16 after each product.

    Sums in f32 of n products err by n 2^-24 of the sum of magnitudes at most; a rounding to f16 by 2^-11.
    """
    bias, qkv_weight, x, scores, out_weight = (a.astype(np.float64) for a in arrays)
    half, single = 2.0**-11, 2.0**-24
    qkv = bias + x @ qkv_weight
    qkv_error = half * np.abs(qkv) + 769 * single * (np.abs(bias) + np.abs(x) @ np.abs(qkv_weight))

    def heads(a: np.ndarray) -> np.ndarray:
        return a.reshape(1, 348, 36, 64).transpose(0, 2, 1, 3)[:, first_head : first_head + 12]

    values, values_error = heads(qkv), heads(qkv_error)
    mixed = scores @ values
    mixed_error = half * np.abs(mixed) + np.abs(scores) @ (values_error + 348 * single * np.abs(values))

    def joined(a: np.ndarray) -> np.ndarray:
        return a.transpose(0, 2, 1, 3).reshape(348, 768)

    result = joined(mixed) @ out_weight
    through = (joined(mixed_error) + 768 * single * np.abs(joined(mixed))) @ np.abs(out_weight)
    return result, half * np.abs(result) + through


def test_excerpt_computes_what_it_says() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random((1, 12, 348, 348))
    drawn = (
        rng.standard_normal((348, 2304)),
        rng.standard_normal((768, 2304)) / 28,
        rng.standard_normal((348, 768)),
        scores / scores.sum(axis=-1, keepdims=True),
        rng.standard_normal((768, 768)) / 28,
    )
    arrays = [a.astype(np.float16) for a in drawn]
    (got,) = run(read(EXCERPT), *arrays)
    expected, tolerance = excerpt_by_hand(arrays, first_head=24)
    assert got.dtype == np.float16
    assert (np.abs(got - expected) <= 1.01 * tolerance).all()
    other, _ = excerpt_by_hand(arrays, first_head=12)
    assert (np.abs(got - other) > tolerance).mean() > 0.5, "the tolerance does not tell heads 24 to 36 from 12 to 24"


def test_the_product_keeps_its_layout_as_an_output() -> None:
    """Cut before @37, the product with trans_batch=1 is what nobody reads: its strides are the output's."""
    named = read(lines(*EXCERPT.splitlines()[:7]))
    assert named.output_names == ("@36",)
    assert strides(named) == [(267264, 64, 768, 1)]


# Names that are not defined


@pytest.mark.parametrize(
    ("line", "name", "expected"),
    [
        ("@9 = dot(@1,b) -> half_type, {4, 6}, {6, 1}", "@1", (f16, (4, 5), (5, 1))),
        ("@9 = dot(c,@1) -> half_type, {2, 6}, {6, 1}", "@1", (f16, (5, 6), (6, 1))),
        ("@9 = gpu::gemm[alpha=1,beta=1](c,b,@1,@2) -> half_type, {2, 6}, {6, 1}", "@1", (f16, (2, 6), (6, 1))),
        ("@9 = quant_dot(q,@1) -> int32_type, {2, 3}, {3, 1}", "@1", (i8, (4, 3), (3, 1))),
        ("@9 = add(@1,c) -> half_type, {2, 5}, {5, 1}", "@1", (f16, (2, 5), (5, 1))),
        ("@9 = greater(c,@1) -> bool_type, {2, 5}, {5, 1}", "@1", (f16, (2, 5), (5, 1))),
        ("@9 = where(@1,c,c) -> half_type, {2, 5}, {5, 1}", "@1", (bool_, (2, 5), (5, 1))),
        ("@9 = softmax[axis=1](@1) -> bf16_type, {2, 5}, {5, 1}", "@1", (bf16, (2, 5), (5, 1))),
        ("@9 = transpose[permutation={2, 0, 1}](@1) -> half_type, {4, 2, 3}, {1, 12, 4}", "@1",
         (f16, (2, 3, 4), (12, 4, 1))),
        ("@9 = transpose[permutation={2, 0, 1}](@1) -> half_type, {4, 2, 3}, {2, 24, 8}", "@1",
         (f16, (2, 3, 4), (24, 8, 2))),
        ("@9 = identity(@1) -> half_type, {2, 3}, {1, 2}", "@1", (f16, (2, 3), (1, 2))),
        ("@9 = unsqueeze[axes={1},steps={}](@1) -> half_type, {2, 1, 3}, {3, 3, 1}", "@1", (f16, (2, 3), (3, 1))),
        ("@9 = unsqueeze[axes={1},steps={2}](@1) -> half_type, {2, 2, 3}, {6, 3, 1}", "@1", (f16, (2, 6), (6, 1))),
        ("@9 = quantizelinear(c,@1) -> uint8_type, {2, 5}, {5, 1}", "@1", (f16, (2, 5), (5, 1))),
        ("@9 = quantizelinear(c,c,@1) -> int8_type, {2, 5}, {5, 1}", "@1", (i8, (2, 5), (5, 1))),
        ("@9 = dequantizelinear(q,@1) -> half_type, {2, 4}, {4, 1}", "@1", (f16, (2, 4), (4, 1))),
        ("@9 = dequantizelinear(q,d,@1) -> half_type, {2, 4}, {4, 1}", "@1", (i8, (2, 4), (4, 1))),
        ("@9 = squeeze[axes={1}](@1) -> half_type, {2, 3}, {3, 1}", "@1", (f16, (2, 1, 3), (3, 3, 1))),
        ("@9 = concat[axis=1](c,@1,c) -> half_type, {2, 17}, {17, 1}", "@1", (f16, (2, 7), (7, 1))),
        ("@9 = pad[mode=0,pads={0, 1, 0, 2},value=0](@1) -> half_type, {2, 8}, {8, 1}", "@1", (f16, (2, 5), (5, 1))),
    ],
)  # fmt: skip
def test_shape_from_the_line_that_uses_it(line: str, name: str, expected: tuple[object, ...]) -> None:
    given = lines(
        "b = @param:b -> half_type, {5, 6}, {6, 1}",
        "c = @param:c -> half_type, {2, 5}, {5, 1}",
        "d = @param:d -> half_type, {2, 4}, {4, 1}",
        "q = @param:q -> int8_type, {2, 4}, {4, 1}",
    )
    named = read_migraphx(given + line)
    verify(named.graph)
    spec = named.graph.inputs[named.input_names.index(name)]
    assert (spec.dtype, spec.sizes, spec.strides) == expected
    assert spec.constant is None


def test_shape_from_another_line() -> None:
    """@1 is open in the first line that uses it, and follows from the third by way of @2."""
    text = lines(
        "@3 = dot(@1,@2) -> float_type, {4, 6}, {6, 1}",
        "x = @param:x -> float_type, {5, 6}, {6, 1}",
        "@4 = mul(@2,x) -> float_type, {5, 6}, {6, 1}",
    )
    named = read_migraphx(text)
    assert dict(zip(named.input_names, [s.sizes for s in named.graph.inputs], strict=True)) == {
        "@1": (4, 5), "@2": (5, 6), "x": (5, 6),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("@9 = dot(@1,@2) -> half_type, {4, 6}, {6, 1}", "1:10: @1 is not defined .* determine its extents: include"),
        ("@9 = reshape[dims={4}](@1) -> half_type, {4}, {1}", "1:24: @1 .* its extents: .* sizes beside the text"),
        ("@9 = slice[axes={0},starts={0},ends={4}](@1) -> half_type, {4}, {1}", "1:42: @1 .* its extents"),
        ("@9 = reduce_sum[axes={0}](@1) -> half_type, {1}, {1}", "1:27: @1 .* its extents"),
        ("@9 = multibroadcast[out_lens={4, 2}](@1) -> half_type, {4, 2}, {0, 1}", "1:38: @1 .* its extents"),
        ("@9 = convert[target_type=1](@1) -> half_type, {4}, {1}", "1:29: @1 .* its element type"),
        ("@9 = greater(@1,@2) -> bool_type, {4}, {1}", "1:14: @1 .* its element type"),
        ("@9 = argmax[axis=0](@1) -> int64_type, {1}, {1}", "1:21: @1 .* its extents and element type: include the "
         "line that defines it$"),
        ("@9 = quant_dot(@1,@2) -> float_type, {4, 6}, {6, 1}", "1:16: @1 .* its extents and element type"),
    ],
)  # fmt: skip
def test_shape_left_open(line: str, message: str) -> None:
    with pytest.raises(FormatError, match=f"^{message}"):
        read_migraphx(line)


def test_stated_beside_the_text() -> None:
    text = "@9 = reshape[dims={4, 6}](@1) -> half_type, {4, 6}, {6, 1}"
    beside = SideFile(shapes={"@1": (2, 12)}, strides={"@1": (1, 2)})
    with pytest.raises(FormatError, match=r"^1:34: reshape gives"):  # as it lies, this is a copy
        read_migraphx(text.replace("{6, 1}", "{1, 4}"), beside)
    (spec,) = read(text, beside=beside).graph.inputs
    assert (spec.sizes, spec.strides) == ((2, 12), (1, 2))
    text = lines(*EXCERPT.splitlines()[:5])
    assert read(text, beside=SideFile(outputs=("@22", "@21"))).output_names == ("@22", "@21")


@pytest.mark.parametrize(
    ("beside", "message"),
    [
        (SideFile(shapes={"y": (4,)}), "shapes/inputs/y/shape: no input has this name, the inputs are .'x'.$"),
        (SideFile(shapes={"x": (4,)}), r"shapes/inputs/x/shape: \[4\] is given, but the text says \[2, 3\]"),
        (SideFile(strides={"x": (4,)}), r"shapes/inputs/x/strides: \[4\] is given, but the text says \[3, 1\]"),
        (SideFile(outputs=("x", "z")), "shapes/outputs: 'z' is no value of the program"),
    ],
)
def test_wrong_beside_the_text(beside: SideFile, message: str) -> None:
    text = "x = @param:x -> float_type, {2, 3}, {3, 1}\n@1 = neg(x) -> float_type, {2, 3}, {3, 1}"
    with pytest.raises(FormatError, match=f"^{message}"):
        read_migraphx(text, beside)


# Inputs, literals, buffers, outputs

HEAD = lines('module: "main"', "x = @param:x -> float_type, {2, 3}, {1, 2} # Input")


def test_layouts_of_parameters_and_results() -> None:
    named = read_migraphx(HEAD + "@1 = neg(x) -> float_type, {2, 3}, {1, 2}\n@2 = @return(@1,x) # @output_0:Y")
    assert named.output_names == ("@1", "x")
    assert named.graph.inputs[0].strides == (1, 2)
    assert strides(named) == [(1, 2), (1, 2)]


def test_results_that_nobody_reads_are_outputs() -> None:
    text = HEAD + lines(
        "@1 = neg(x) -> float_type, {2, 3}, {3, 1}",
        "...",
        "@2 = @literal{ ... } -> float_type, {2, 3}, {3, 1}",
        "main:#output_0 = @param:main:#output_0 -> float_type, {2, 3}, {3, 1}",
        "@3 = hip::hip_allocate_memory[shape=int8_type, {64}, {1},id=main:scratch] -> int8_type, {64}, {1}",
        "@4 = load[offset=0,end=24](@3) -> float_type, {2, 3}, {3, 1}",
        "@5 = gpu::exp(x,@4) -> float_type, {2, 3}, {3, 1}: 0.00028068ms, 3%",
        "@6 = gpu::add(@5,x,main:#output_0) -> float_type, {2, 3}, {3, 1}, target_id=1",
    )
    named = read_migraphx(text)
    assert (named.input_names, named.output_names) == (("x",), ("@1", "@6"))


@pytest.mark.parametrize(
    ("literal", "type_", "values"),
    [
        ("{0.5}", "float_type, {1}, {0}", [0.5]),
        ("{-1, 784}", "int32_type, {2}, {1}", [-1, 784]),
        ("{1, 0, 1}", "bool_type, {3}, {1}", [True, False, True]),
        ("{-inf, nan}", "float_type, {2}, {1}", [-np.inf, np.nan]),
        ("{0.333252, 1e-05}", "half_type, {2}, {1}", [0.33325195, 1.001358e-05]),  # six digits say it all
        ("{1e-12}", "double_type, {1}, {0}", [1e-12]),
        ("{0.1415}", "float_type, {1}, {0}", [np.float32(0.1415)]),
        ("{0.797885}", "float_type, {1}, {0}", None),  # six digits of some value
        ("{1, 0.044715}", "float_type, {2}, {1}", None),
        ("{ ... }", "half_type, {2}, {1}", None),
    ],
)
def test_literals(literal: str, type_: str, values: list[float] | None) -> None:
    """Constants where the digits determine them, weights otherwise."""
    named = read_migraphx(f"@0 = @literal{literal} -> {type_}\n@1 = identity(@0) -> {type_}")
    if values is None:
        (spec,) = named.graph.inputs
        assert (named.input_names, spec.constant) == (("@0",), "@0")
        return
    assert named.input_names == ()
    (got,) = run(named)
    np.testing.assert_array_equal(got, np.array(values, got.dtype))


def test_one_id_is_one_weight() -> None:
    line = "hip::hip_copy_literal[id=main:@literal:4] -> half_type, {2}, {1}"
    text = f"@0 = {line}\n@1 = {line}\n@2 = mul(@0,@1) -> half_type, {{2}}, {{1}}"
    assert read_migraphx(text).input_names == ("main:@literal:4",)
    with pytest.raises(FormatError, match=r"^2:\d+: the literal 'main:@literal:4' is half_type, .* here float_type"):
        read_migraphx(text.replace("half", "float", 2).replace("float", "half", 1))


def test_spellings_of_a_program_give_one_graph() -> None:
    """Names of newer and of older releases, with and without debug symbols, windows line ends and indentation."""
    newer = lines(
        'module: "main"', "x = @param:x -> float_type, {4}, {1} # a, b", "@1 = exp(x) -> float_type, {4}, {1}"
    )
    older = newer.replace("@1", "main:@1").replace(" # a, b", "").replace("\n", "\r\n    ")
    said = "Running [ MIGraphX Version: 2.15.0 ]: compile\n[2026-03-08 11:26:14]\nCompiling ... \n" + newer
    keys = {graph_key(read(t).graph) for t in (newer, older, said)}
    assert len(keys) == 1


def test_reader_is_found() -> None:
    for text in (EXCERPT, HEAD + "@1 = neg(x) -> float_type, {2, 3}, {1, 2}", EXCERPT.replace("@", "main:@")):
        assert read(text, filename="anything.txt").output_names


# Modules

BODY = lines(
    'module: "main:pointwise0"',
    "x1 = @param:x1 -> float_type, {1}, {0}",
    "x0 = @param:x0 -> float_type, {1}, {0}",
    "main:pointwise0:@2 = @literal{0.5} -> float_type, {1}, {0}",
    "main:pointwise0:@3 = @literal{0.797885} -> float_type, {1}, {0}",
    "main:pointwise0:@4 = mul(x0,main:pointwise0:@2) -> float_type, {1}, {0}",
    "main:pointwise0:@5 = mul(x1,main:pointwise0:@3) -> float_type, {1}, {0}",
    "main:pointwise0:@6 = sub(main:pointwise0:@4,main:pointwise0:@5) -> float_type, {1}, {0}",
    "main:pointwise0:@7 = convert[target_type=1](main:pointwise0:@6) -> half_type, {1}, {0}",
    "main:pointwise0:@8 = @return(main:pointwise0:@7)",
)


def test_pointwise_module() -> None:
    """Operands meet parameters by name, not in the order in which the body prints them."""
    text = lines(
        'module: "main"',
        "y = @param:y -> float_type, {2, 3}, {3, 1}",
        "main:@1 = pointwise(@0,y), [main:pointwise0] -> half_type, {2, 3}, {1, 2}",
        "main:@2 = pointwise(y,@0), [main:pointwise0] -> half_type, {2, 3}, {3, 1}",
        "main:@3 = @return(main:@1,main:@2)",
        "",
    )
    named = read_migraphx(text + BODY)
    assert named.input_names == ("y", "@0", "main:pointwise0:@3")
    assert strides(named) == [(1, 2), (3, 1)]
    rng = np.random.default_rng(1)
    y, x, w = (rng.standard_normal(s).astype(np.float32) for s in ((2, 3), (2, 3), (1,)))
    first, second = run(named, y, x, w)
    np.testing.assert_array_equal(first, (x * np.float32(0.5) - y * w).astype(np.float16))
    np.testing.assert_array_equal(second, (y * np.float32(0.5) - x * w).astype(np.float16))


def test_int64_default_of_index_types() -> None:
    named = read_migraphx(
        "x = @param:x -> float_type, {2, 3}, {3, 1}\n@1 = argmax[axis=1](x) -> int64_type, {2, 1}, {1, 1}"
    )
    assert named.graph.outputs[0].node.dtype == i64
    assert named.graph.inputs[0].dtype == f32
