"""Nodes keep the names that their sender gave them, whatever the format; what has several keeps the first."""

from dataclasses import replace

import pytest

from fusion_ir.core.named import NamedGraph
from fusion_ir.formats import read
from fusion_ir.formats.json.wire import from_wire, to_wire
from fusion_ir.text.printing import parse_graph, print_graph

NVFUSER = """def nvfuser_fusion_id0(fd : FusionDefinition) -> None :
    T0 = fd.define_tensor(shape=[64], contiguity=[True], dtype=DataType.Float)
    T1 = fd.ops.exp(T0)
    T2 = fd.ops.set(T1)
    T3 = fd.ops.exp(T0)
    T4 = fd.ops.neg(T3)
    T1 = fd.ops.sin(T4)
    fd.add_output(T1)
"""
SUM_OF_PRODUCTS = """def nvfuser_fusion_id0(fd : FusionDefinition) -> None :
    T0 = fd.define_tensor(shape=[64, 32], contiguity=[True, True], dtype=DataType.BFloat16)
    T1 = fd.define_tensor(shape=[48, 32], contiguity=[True, True], dtype=DataType.BFloat16)
    T2 = fd.ops.cast(T0, dtype=DataType.Float)
    T3 = fd.ops.cast(T1, dtype=DataType.Float)
    T4 = fd.ops.broadcast_in_dim(T2, shape=[64, 48, 32], broadcast_dims=[0, 2])
    T5 = fd.ops.broadcast_in_dim(T3, shape=[64, 48, 32], broadcast_dims=[1, 2])
    T6 = fd.ops.mul(T4, T5)
    T7 = fd.ops.sum(T6, dims=[2], keepdim=False, dtype=DataType.Null)
    T8 = fd.ops.neg(T7)
    fd.add_output(T8)
"""
MIGRAPHX = """x = @param:x -> float_type, {8, 4}, {4, 1}
@1 = transpose[permutation={1, 0}](x) -> float_type, {4, 8}, {1, 4}
@2 = exp(@1) -> float_type, {4, 8}, {8, 1}
@3 = @return(@2)
"""
KERNEL_MATH = """Inputs:
  T0_g___bfloat[bS0{1}, iS1{64}]
Outputs:
  T2_g_float[bS4{1}, iS5{64}]
%kernel_math {
T1_l_float[bS2{1}, iS3{64}]
   = __bfloat2float(T0_g___bfloat[bS0{1}, iS1{64}]);
T2_g_float[bS4{1}, iS5{64}]
   = cosf(T1_l_float[bS2{1}, iS3{64}]);
}
"""
JSON = (
    '{"format": "fuseplan.graph", "version": 1, "inputs": [{"name": "x", "shape": [8], "dtype": "f32"}], "nodes": ['
    '{"name": "soft", "op": "softmax", "args": ["x"], "attrs": {"axis": 0}}, '
    '{"name": "half way", "op": "neg", "args": ["soft"]}, {"name": "again", "op": "neg", "args": ["soft"]}], '
    '"outputs": [{"node": "again", "name": "y"}]}'
)
TEXT = """fuseplan.graph 1
in0: f32[8] align 16
%4 = in0: f32[8]
%9 = exp(%4): f32[8]
%7 = neg(%9): f32[8]
out0: %7
"""
NAMED = TEXT.replace("%9 =", '%9 "e x" =')
FORMATS = {
    "nvfuser": (NVFUSER, "exp T1, neg T4, sin T1"),
    "sum of products": (SUM_OF_PRODUCTS, "contract T7, neg T8"),
    "migraphx": (MIGRAPHX, "permute @1, exp @2"),
    "kernel_math": (KERNEL_MATH, "cast T1, cos T2"),
    "json": (JSON, "max, broadcast_in_dim, sub, exp, sum, broadcast_in_dim, div soft, neg half way"),
    "text": (TEXT, "exp %9, neg %7"),
    "text with names": (NAMED, "exp e x, neg %7"),
}


def told(named: NamedGraph) -> str:
    """Ops and names of all nodes; those of chains of broadcasts once."""
    words: list[str] = []
    for node, name in zip(named.graph.nodes, named.node_names, strict=True):
        word = f"{node.op} {name}".strip()
        if node.op != "input" and word != (words[-1:] or [""])[0]:
            words.append(word)
    return ", ".join(words)


@pytest.mark.parametrize("name", FORMATS)
def test_names(name: str) -> None:
    text, expected = FORMATS[name]
    assert told(read(text)) == expected


@pytest.mark.parametrize("name", FORMATS)
def test_names_go_through_text_and_json(name: str) -> None:
    named = read(FORMATS[name][0])
    assert parse_graph(print_graph(named)) == replace(named, notes=())
    again = from_wire(to_wire(named))
    assert again.graph == named.graph
    named_there = [(n, a) for n, a in zip(named.node_names, again.node_names, strict=True) if n]
    repeated = {n for n, _ in named_there if named.node_names.count(n) > 1}
    assert all(n == a for n, a in named_there if n not in repeated)


def test_a_node_with_the_name_of_an_input_gets_another_in_json() -> None:
    named = parse_graph(NAMED.replace("in0: f32[8] align", 'in0 "e x": f32[8] align'))
    wire = to_wire(named)
    assert [row["name"] for row in wire["inputs"]] == ["e x"]
    assert "e x" not in [row["name"] for row in wire["nodes"]]
    assert from_wire(wire).graph == named.graph


def test_a_canonical_text_gives_no_names() -> None:
    assert parse_graph(print_graph(parse_graph(TEXT).graph)).node_names == ()


def test_names_are_one_for_each_node() -> None:
    graph = parse_graph(TEXT).graph
    with pytest.raises(ValueError, match="3 nodes but 2 names"):
        NamedGraph(graph, ("x",), ("y",), (), ("", "e"))
