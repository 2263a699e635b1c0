"""The wire format: what is read, and what is refused with which place and reason."""

import json
import tracemalloc
from typing import Any

import pytest

from fusion_ir import building as build
from fusion_ir.core.extent import shape_of
from fusion_ir.core.graph import InputSpec
from fusion_ir.core.limits import LIMITS
from fusion_ir.core.named import NamedGraph
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f16, f32, i64
from fusion_ir.errors import FormatError
from fusion_ir.formats.json.wire import from_wire, read_json, to_wire
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.ops import make_input
from fusion_ir.text.printing import print_graph
from tests.support.small_graphs import random_graph

Wire = dict[str, Any]


def wire(**changes: Any) -> Wire:
    """y = x * bias, with what is given in place of the usual fields."""
    graph: Wire = {
        "format": "fuseplan.graph",
        "version": 1,
        "inputs": [
            {"name": "x", "shape": [4, 8], "dtype": "f32"},
            {"name": "bias", "shape": [8], "dtype": "f32", "alignment": 64, "constant": "v1"},
        ],
        "nodes": [{"name": "y", "op": "mul", "args": ["x", "bias"]}],
        "outputs": [{"node": "y"}],
    }
    return graph | changes


def with_input(**changes: Any) -> Wire:
    return wire(inputs=[wire()["inputs"][0] | changes, wire()["inputs"][1]])


def with_nodes(*nodes: Wire, output: str = "y") -> Wire:
    return wire(nodes=list(nodes), outputs=[{"node": output}])


def read(value: object) -> NamedGraph:
    return read_json(json.dumps(value))


def node(name: str, op: str, *args: str, **attrs: Any) -> Wire:
    return {"name": name, "op": op, "args": list(args), "attrs": attrs}


# What is read


def test_names_layouts_and_defaults() -> None:
    named = read(
        wire(outputs=[{"node": "y", "strides": [1, 4], "donates": None}, {"node": "y", "name": "again"}, {"node": "y"}])
    )
    assert named.input_names == ("x", "bias")
    assert named.output_names == ("y", "again", "y_3")
    assert named.graph.inputs[0] == InputSpec(shape_of((4, 8)), f32, (8, 1), 16, None)
    assert named.graph.inputs[1] == InputSpec(
        shape_of((8,)), f32, (1,), 32, "v1"
    )  # more than 32 bytes make no difference
    assert [o.strides for o in named.graph.outputs] == [(1, 4), (8, 1), (8, 1)]


@pytest.mark.parametrize("seed", range(150))
def test_round_trip(seed: int) -> None:
    graph = random_graph(seed)
    named = NamedGraph.unnamed(graph)
    again = from_wire(json.loads(json.dumps(to_wire(named))))
    assert again.input_names == named.input_names
    assert again.output_names == named.output_names
    for ours, theirs in zip(graph.inputs, again.graph.inputs, strict=True):
        assert theirs.alignment_bytes == min(ours.alignment_bytes, 32)
    if all(spec.alignment_bytes <= 32 for spec in graph.inputs):
        assert again.graph == graph
        assert graph_key(again.graph) == graph_key(graph)


def test_names_that_look_like_ours_do_not_collide() -> None:
    spec = {"shape": [2], "dtype": "f32"}
    named = read(
        wire(
            inputs=[{"name": n, **spec} for n in ("n0", "n_", "", "n")[:2]],
            nodes=[node("a", "add", "n0", "n_"), node("b", "exp", "a")],
            outputs=[{"node": "b"}],
        )
    )
    assert from_wire(to_wire(named)) == named


def test_nodes_in_any_order() -> None:
    nodes = [node("c", "exp", "b"), node("b", "neg", "a"), node("a", "add", "x", "x")]
    keys = {
        graph_key(read(with_nodes(*order, output="c")).graph)
        for order in (nodes, nodes[::-1], [nodes[1], nodes[0], nodes[2]])
    }
    assert len(keys) == 1


def test_a_long_chain_written_backwards() -> None:
    count = 5000
    nodes = [node(f"n{i}", "neg", f"n{i - 1}" if i else "x") for i in range(count)]
    named = read(with_nodes(*reversed(nodes), output=f"n{count - 1}"))
    assert len(named.graph.nodes) == count + 1


X, W = InputSpec(shape_of((4, 8)), bf16, (8, 1)), InputSpec(shape_of((8,)), bf16, (1,))
_x, _w = make_input(0, X), make_input(1, W)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (node("y", "softmax", "x", axis=-1), build.softmax(_x, -1)),
        (node("y", "layer_norm", "x", "w", "w", axes=[1], eps=1e-6), build.layer_norm(_x, [1], _w, _w, 1e-6)),
        (node("y", "rms_norm", "x", "w"), build.rms_norm(_x, -1, _w)),
        (node("y", "gelu", "x"), build.gelu(_x)),
        (node("y", "gelu", "x", approximate="tanh"), build.gelu(_x, "tanh")),
        (node("y", "silu", "x"), build.silu(_x)),
        (node("y", "sum", "x", axes=[-1], keepdims=True), build.sum_(_x, -1, keepdims=True)),
        (node("y", "sum", "x", axes=[-1]), build.sum_(_x, 1)),
        (node("y", "sum", "x"), build.sum_(_x)),
        (node("y", "linear", "x", "x"), build.linear(_x, _x)),
        (node("y", "matmul", "x", "w", dtype="f32"), build.matmul(_x, _w, f32)),
        (node("y", "add", "x", y=1), build.add(_x, 1)),
        (node("y", "add", "x", "w"), build.add(_x, _w)),
        (node("y", "clamp", "x", low=0, high=6.5), build.clamp(_x, 0, 6.5)),
        (node("y", "clamp", "x", high=6.5), build.clamp(_x, None, 6.5)),
        (node("y", "reshape", "x", shape=[2, -1]), build.reshape(_x, [2, 16])),
        (node("y", "full", shape=[2], value=3, dtype="f16"), build.full([2], 3, f16)),
        (node("y", "full", shape=[2], value="f16:0x4200"), build.full([2], 3, f16)),
        (node("y", "full", shape=[2], value=3), build.full([2], 3, i64)),
        (node("y", "pad", "x", low=[0, 1], high=[0, 0], value=0.5), build.pad(_x, [0, 1], [0, 0], 0.5)),
        (node("y", "pad", "x", low=[0, 1], high=[0, 0]), build.pad(_x, [0, 1], [0, 0])),
        (node("y", "slice", "x", start=[0, -4], stop=[4, 100]), build.slice_(_x, [0, 4], [4, 8])),
        (node("y", "cat", "x", "x", axis=-1), build.cat([_x, _x], 1)),
        (node("y", "squeeze", "x"), _x),
        (node("y", "argmax", "x"), build.argmax(_x)),
        (node("y", "cast", "x", dtype="f32"), build.cast(_x, f32)),
    ],
    ids=lambda v: v["op"] if isinstance(v, dict) else "",
)
def test_loose_and_composite_ops(written: Wire, expected: Node) -> None:
    inputs = [{"name": "x", "shape": [4, 8], "dtype": "bf16"}, {"name": "w", "shape": [8], "dtype": "bf16"}]
    named = read(wire(inputs=inputs, nodes=[written], outputs=[{"node": "y"}]))
    assert named.graph.outputs[0].node is expected


def test_several_results() -> None:
    nodes = [node("y", "add", "s.0", "s.1"), node("s", "var_mean", "x", axes=[1], correction=0)]
    x = make_input(0, InputSpec(shape_of((4, 8)), f32, (8, 1)))
    assert read(with_nodes(*nodes)).graph.outputs[0].node is build.add(*build.var_mean(x, 1, 0))


def test_strange_names() -> None:
    names = ['"', "\n", "a b", "../../etc/passwd", "\u2028", "é", "x; rm -rf /", "x'", "\\", "\x00", "#include <x>"]
    inputs = [{"name": n, "shape": [2], "dtype": "f32"} for n in names]
    named = read(wire(inputs=inputs, nodes=[node("'\"\n", "neg", names[0])], outputs=[{"node": "'\"\n"}]))
    assert named.input_names == tuple(names)
    assert not any(n in print_graph(named.graph) for n in names if len(n) > 1 and n != "a b")


# What is refused. The list is that of the issue; each entry names the place and says what was expected and found.

BAD: dict[str, tuple[object, str]] = {
    "no object": ([], "expected an object, got a list"),
    "other format": (wire(format="onnx"), "/format: expected 'fuseplan.graph', got the string 'onnx'"),
    "other version": (wire(version=2), "/version: expected 1, got 2"),
    "field missing": ({k: v for k, v in wire().items() if k != "nodes"}, "/nodes: is missing"),
    "unknown field": (wire(color="red"), "/color: unknown field"),
    "unknown field of a node": (with_nodes(node("y", "neg", "x") | {"dtype": "f32"}), "/nodes/0/dtype: unknown field"),
    "no outputs": (wire(outputs=[]), "/outputs: .* at least 1"),
    "string as number": (
        with_input(shape=["4", 8]),
        "/inputs/0/shape/0: expected an integer, got the string '4'",
    ),
    "bool as number": (with_input(shape=[True, 8]), "/inputs/0/shape/0: expected an integer, got true"),
    "float as integer": (with_input(shape=[4.0, 8]), "/inputs/0/shape/0: expected an integer, got 4.0"),
    "NaN as extent": (with_input(shape=[float("nan")]), "/inputs/0/shape/0: expected .*, got nan"),
    "extent of 2^63": (with_input(shape=[2**63, 8]), "/inputs/0/shape/0: expected less than"),
    "2^63 elements": (with_input(shape=[2**31, 2**32]), r"/inputs/0/shape: shape .* has 9223372036854775808 elements"),
    "2^40 + 1 elements": (with_input(shape=[2**40 + 1]), "/inputs/0/shape: .* at most 1099511627776"),
    "huge beside 0": (with_input(shape=[0, 2**62]), "/inputs/0/shape: .* at most 1099511627776"),
    "negative extent": (with_input(shape=[4, -8]), "/inputs/0/shape: axis 1 has extent -8"),
    "rank 13": (with_input(shape=[1] * 13), "/inputs/0/shape: rank 13 is above the limit of 12"),
    "unknown dtype": (with_input(dtype="float80"), "/inputs/0/dtype: expected 'f64', .*, got the string 'float80'"),
    "negative stride": (with_input(strides=[-8, 1]), "/inputs/0/strides: axis 0 has negative stride -8"),
    "overlapping strides": (
        with_input(strides=[4, 1]),
        "/inputs/0/strides: strides overlap: axis 0 .* a stride of 8 or more",
    ),
    "overlapping output": (wire(outputs=[{"node": "y", "strides": [0, 1]}]), "/outputs/0/strides: strides overlap"),
    "too few strides": (with_input(strides=[1]), "/inputs/0/strides: expected 2 strides, got 1"),
    "strides beyond 2^40": (with_input(strides=[2**42, 1]), "/inputs/0/strides: strides span"),
    "odd alignment": (with_input(alignment=3), "/inputs/0/alignment: alignment 3 .* power of two"),
    "alignment below the element": (with_input(alignment=2), "/inputs/0/alignment: .* from 4 to 4096"),
    "empty name": (with_input(name=""), "/inputs/0/name: .* at least 1 character"),
    "long name": (with_input(name="x" * 257), "/inputs/0/name: .* at most 256"),
    "two inputs of a name": (with_input(name="bias"), "/inputs/1/name: two tensors are named 'bias'"),
    "two nodes of a name": (
        with_nodes(node("y", "neg", "x"), node("y", "exp", "x")),
        "/nodes/1/name: two tensors are named 'y'",
    ),
    "node named as an input": (with_nodes(node("x", "neg", "x")), "/nodes/0/name: two tensors are named 'x'"),
    "result named as a node": (
        with_nodes(node("y", "var_mean", "x"), node("y.1", "neg", "x"), output="y.0"),
        "/nodes/1/name: two tensors are named 'y.1'",
    ),
    "two outputs of a name": (
        wire(outputs=[{"node": "y", "name": "o"}] * 2),
        "/outputs/1/name: two outputs are named 'o'",
    ),
    "missing name": (with_nodes(node("y", "neg", "bais")), "/nodes/0/args/0: no .* named 'bais'; did you mean 'bias'"),
    "missing output": (wire(outputs=[{"node": "z"}]), "/outputs/0/node: no input or node is named 'z'"),
    "missing donor": (wire(outputs=[{"node": "y", "donates": "z"}]), "/outputs/0/donates: no input is named 'z'"),
    "donated constant": (
        wire(outputs=[{"node": "y", "donates": "bias"}]),
        r"/outputs/0/donates: .* f32\[4, 8\] strides \[8, 1\], 'bias' is f32\[8\]",
    ),
    "donated twice": (
        wire(outputs=[{"node": "y", "donates": "x"}, {"node": "x", "donates": "x"}]),
        "/outputs/1/donates: 'x' is donated to two outputs",
    ),
    "cycle of one": (with_nodes(node("y", "neg", "y")), "/nodes/0: nodes depend on themselves: 'y' reads 'y'"),
    "cycle of three": (
        with_nodes(
            node("d", "neg", "a"), node("a", "neg", "b"), node("b", "neg", "c"), node("c", "neg", "a"), output="d"
        ),
        "/nodes/1: nodes depend on themselves: 'a' reads 'b' reads 'c' reads 'a'",
    ),
    "cycle beside the output": (
        with_nodes(node("y", "neg", "x"), node("a", "add", "b", "x"), node("b", "neg", "a")),
        "/nodes/1: nodes depend on themselves: 'a' reads 'b' reads 'a'",
    ),
    "several results unnamed": (
        with_nodes(node("s", "var_mean", "x"), node("y", "neg", "s")),
        "/nodes/1/args/0: 's' has several results: read s.0, s.1",
    ),
    "unknown op": (with_nodes(node("y", "sotfmax", "x")), "/nodes/0/op: unknown op 'sotfmax'; did you mean 'softmax'"),
    "too few operands": (with_nodes(node("y", "add", "x")), "/nodes/0: add: operand y is missing, got 1 operand and"),
    "too many operands": (with_nodes(node("y", "neg", "x", "x")), "/nodes/0/args: neg takes at most 1 operand, got 2"),
    "shape mismatch": (
        wire(inputs=[{"name": n, "shape": [s], "dtype": "f32"} for n, s in (("x", 3), ("bias", 4))]),
        r"/nodes/0: mul: shapes \[\[3\], \[4\]\] do not broadcast",
    ),
    "dtype mismatch": (with_nodes(node("y", "bitwise_and", "x", "bias")), "/nodes/0: bitwise_and: expected an integer"),
    "unknown attribute": (
        with_nodes(node("y", "softmax", "x", dim=1)),
        "/nodes/0/attrs/dim: softmax has no attribute 'dim'",
    ),
    "missing attribute": (with_nodes(node("y", "permute", "x")), "/nodes/0: permute: attribute dims is missing"),
    "attribute of an exact op": (
        with_nodes(node("y", "contract", "x", "x")),
        "/nodes/0/attrs: contract takes attributes",
    ),
    "axis out of range": (with_nodes(node("y", "softmax", "x", axis=2)), "/nodes/0: softmax: axis 2 is out of range"),
    "axis as a string": (
        with_nodes(node("y", "softmax", "x", axis="1")),
        "/nodes/0/attrs/axis: expected an integer, got '1'",
    ),
    "axis true": (
        with_nodes(node("y", "softmax", "x", axis=True)),
        "/nodes/0/attrs/axis: expected an integer, got true",
    ),
    "NaN attribute": (
        with_nodes(node("y", "mul", "x", y=float("nan"))),
        "/nodes/0/attrs/y: expected a finite number, got nan",
    ),
    "infinite attribute": (
        with_nodes(node("y", "mul", "x", y=float("inf"))),
        "/nodes/0/attrs/y: expected a finite .* by its bits",
    ),
    "constant of other width": (
        with_nodes(node("y", "full", shape=[], value="f16:0x3c0000")),
        "/nodes/0/attrs/value: .* more bits than f16",
    ),
    "constant that is a name": (
        with_nodes(node("y", "mul", "x", y="x")),
        "/nodes/0/attrs/y: expected a number, got 'x'",
    ),
    "constant out of range": (
        with_nodes(node("y", "full", shape=[], value=300, dtype="u8")),
        "/nodes/0: full: 300 is not a value of u8",
    ),
    "word not known": (
        with_nodes(node("y", "gelu", "x", approximate="erf")),
        r"/nodes/0/attrs/approximate: expected one of \['none', 'tanh'\]",
    ),
    "broadcast beyond 2^40": (
        with_nodes(node("y", "broadcast_in_dim", "x", shape=[2**38, 4, 8], dims=[1, 2])),
        "/nodes/0.*: shape .* at most 1099511627776",
    ),
    "lone surrogate": (with_input(name="a\ud800"), "/inputs/0/name: expected a string without lone surrogates"),
    "pointer escapes": (with_nodes(node("y", "neg", "x", **{"a/b~c": 1})), "/nodes/0/attrs/a"),
    "21,000 outputs": (wire(outputs=[{"node": "y"}] * 21000), "/outputs: .* at most 4096"),
}


@pytest.mark.parametrize("case", BAD)
def test_refused(case: str) -> None:
    value, message = BAD[case]
    with pytest.raises(FormatError, match=f"(?s)^{message}") as caught:
        read(value)
    assert len(str(caught.value)) < 1000


GOOD = json.dumps(wire(), indent=1)

BAD_TEXTS: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "1:1: not JSON"),
    "not JSON": ("x", "1:1: not JSON"),
    "truncated": (GOOD[:-30], r"\d+:\d+: not JSON: .* \(the text ends here\)"),
    "truncated in a string": ('{"format": "fusep', "1:12: not JSON: Unterminated string"),
    "trailing": (GOOD + "}", r"\d+:2: not JSON: Extra data"),
    "trailing comma": (GOOD.replace("1,", "1,,", 1), "3:15: not JSON"),
    "key twice": (GOOD.replace('"op"', '"name": "z", "op"'), "/nodes/0: key 'name' is given twice"),
    "key twice at the top": (
        GOOD.replace('"version": 1', '"version": 1, "version": 1'),
        "key 'version' is given twice",
    ),
    "NaN": (GOOD.replace("[\n    8\n   ]", "[NaN]"), "/inputs/1/shape/0: expected .*, got nan"),
    "Infinity": (GOOD.replace('"version": 1', '"version": Infinity'), "/version: expected 1, got inf"),
    "1e999": (GOOD.replace("[\n    8\n   ]", "[1e999]"), "/inputs/1/shape/0: expected .*, got inf"),
    "1e999 as attribute": (
        json.dumps(with_nodes(node("y", "mul", "x", y=12345))).replace("12345", "1e999"),
        "/nodes/0/attrs/y: expected a finite number, got inf",
    ),
    "5000 digits": (GOOD.replace("64", "9" * 5000), "1:1: not read: an integer has thousands of digits"),
    "lone surrogate": (GOOD.replace('"x"', '"\\ud83d"'), "/inputs/0/name: expected a string without lone surrogates"),
    "lone surrogate in a version": (
        GOOD.replace('"v1"', '"\\udead"'),
        "/inputs/1/constant: expected a string without lone surrogates",
    ),
    "lone surrogate as a key": (
        GOOD.replace('"op"', '"\\udead": 1, "op"'),
        "/nodes/0: expected a string without lone surrogates",
    ),
    "latin-1": (GOOD.replace("v1", "v\xe9").encode("latin-1"), r"\d+:\d+: byte 0xe9 is not UTF-8"),
    "UTF-16": (GOOD.encode("utf-16"), "1:1: byte 0xff is not UTF-8"),
    "byte order mark": (b"\xef\xbb\xbf" + GOOD.encode(), "1:1: not JSON"),
    "null byte": (GOOD.replace('"v1"', '"v\x00"'), r"\d+:\d+: not JSON: Invalid control character"),
    "nested": ("[" * 100_000, "1:1: not read: brackets are nested too deeply"),
    "nested attribute": (
        json.dumps(with_nodes(node("y", "neg", "x", a=12345))).replace("12345", "[" * 300 + "]" * 300),
        "/nodes/0/attrs/a: neg has no attribute",
    ),
    "17 MB": (" " * 17 * 2**20, "the body has 17,825,792 bytes, at most 16,777,216"),
    "60 MB": (b" " * 60 * 10**6, "the body has 60,000,000 bytes, at most 16,777,216"),
}


@pytest.mark.parametrize("case", BAD_TEXTS)
def test_texts_refused(case: str) -> None:
    text, message = BAD_TEXTS[case]
    with pytest.raises(FormatError, match=f"(?s)^{message}") as caught:
        read_json(text)
    assert len(str(caught.value)) < 1000
    read_json(GOOD)


def chain(count: int) -> str:
    nodes = ",".join(f'{{"name":"n{i}","op":"neg","args":["{f"n{i - 1}" if i else "x"}"]}}' for i in range(count))
    return (
        '{"format":"fuseplan.graph","version":1,"inputs":[{"name":"x","shape":[2],"dtype":"f32"}],'
        f'"nodes":[{nodes}],"outputs":[{{"node":"n{count - 1}"}}]}}'
    )


def test_node_limit_to_the_node() -> None:
    assert len(read_json(chain(LIMITS.nodes - 1)).graph.nodes) == LIMITS.nodes
    with pytest.raises(
        FormatError, match=r"^/nodes: 20,001 nodes after composite ops were taken apart, at most 20,000"
    ):
        read_json(chain(LIMITS.nodes))
    with pytest.raises(FormatError, match=r"^/nodes: more than 20,000 nodes"):
        read_json(chain(LIMITS.nodes + 1))


def test_a_hundred_thousand_nodes_take_no_more_memory_than_the_limit() -> None:
    """Reading stops at the first node too many: five times the nodes cost no more than the text itself."""
    peaks: list[int] = []
    for count in (LIMITS.nodes + 1, 5 * LIMITS.nodes):
        text = chain(count)
        tracemalloc.start()
        with pytest.raises(FormatError, match=r"^/nodes: more than 20,000 nodes"):
            read_json(text)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.1 * peaks[0]


def test_nodes_after_composites_are_taken_apart_count() -> None:
    nodes = [node(f"n{i}", "softmax", f"n{i - 1}" if i else "x") for i in range(3000)]
    with pytest.raises(
        FormatError, match=r"^/nodes: \d\d,\d\d\d nodes after composite ops were taken apart, at most 20,000"
    ):
        read(with_nodes(*nodes, output="n2999"))
