"""nvFuser's %kernel_math dumps: the seed's excerpt, whole dumps, logs around them, and texts that are cut off."""

import random
import re
from pathlib import Path

import numpy as np
import pytest

from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.limits import LIMITS
from fusion_ir.core.named import NamedGraph
from fusion_ir.core.node import Node
from fusion_ir.errors import FormatError
from fusion_ir.formats import READERS, SideFile, read
from fusion_ir.formats.kernel_math.reader import read_kernel_math
from fusion_ir.formats.nvfuser.reader import read_nvfuser
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.reference.interpreter import interpret
from fusion_ir.reference.sample_inputs import sample_inputs
from fusion_ir.verify import verify
from testing.tensors import same_bits
from tests.support.kernel_math_printer import print_dump
from tests.support.whole import WHOLE

EXAMPLES = Path(__file__).parents[3] / "examples"
EXCERPT = (EXAMPLES / "mistral_rope_first_part.kernel_math.txt").read_text()
ROPE = (EXAMPLES / "mistral_rope_forward.nvfuser.py").read_text()
SMALL = """\
Inputs:
  T0_g___bfloat[bS0{1}, iS1{64}]
Outputs:
  T2_g_float[bS4{1}, iS5{64}]

%kernel_math {
T1_l_float[bS2{1}, iS3{64}]
   = __bfloat2float(T0_g___bfloat[bS0{1}, iS1{64}]);
T2_g_float[bS4{1}, iS5{64}]
   = T1_l_float[bS2{1}, iS3{64}]
   * double(0.5);
} // %kernel_math

"""


def reduced(text: str, length: int) -> str:
    """The module for a sequence of `length` tokens; its 4,096 features per token stay."""
    text = text.replace("4096", str(length))
    return text.replace(f"iS2{{{length}}}", "iS2{4096}").replace(f"[1, {length}, {length}]", f"[1, {length}, 4096]", 1)


# The seed


def test_excerpt_as_it_is() -> None:
    """Its outputs T29 to T81 lie behind its end, so what nothing reads is put out."""
    named = read(EXCERPT)
    verify(named.graph)
    assert named.input_names == ("T0", "T1", "T2", "T3", "T4")
    assert named.output_names == ("T34", "T26")
    assert [o.node.sizes for o in named.graph.outputs] == [(1, 32, 4096, 128), (1, 4096, 128)]
    assert all(spec.is_dense for spec in named.graph.inputs)
    ops = [node.op for node in named.graph.nodes]
    assert (ops.count("contract"), ops.count("cat"), ops.count("pad"), ops.count("permute")) == (1, 1, 0, 2)
    assert "ends before its outputs T29, T31, T51, T76, T81: T34, T26 put out instead" in named.notes[1]


def test_excerpt_is_the_first_part_of_the_definition() -> None:
    """The very nodes T34 and T26 of the definition, which describes the same module."""
    definition = ROPE.replace("    fd.add_output(T29)\n", "    fd.add_output(T34)\n    fd.add_output(T26)\n")
    whole = read_nvfuser(definition)
    expected = dict(zip(whole.output_names, whole.graph.outputs, strict=True))
    named = read(EXCERPT)
    assert [o.node for o in named.graph.outputs] == [expected["T34"].node, expected["T26"].node]


@pytest.mark.parametrize("length", [48, 64])
def test_excerpt_computes_what_the_definition_does(length: int) -> None:
    """At 64 tokens extents repeat, so that only the numbers of the axes tell how T20 is permuted."""
    named = read(reduced(EXCERPT, length))
    definition = reduced(ROPE, length).replace(
        "    fd.add_output(T29)\n", "    fd.add_output(T34)\n    fd.add_output(T26)\n"
    )
    whole = read_nvfuser(definition)
    inputs = sample_inputs(named.graph, seed=length)
    expected = interpret(whole.graph, inputs)[:2]
    actual = interpret(named.graph, inputs)
    assert np.ptp(actual[1].astype(np.float32)) > 1
    for mine, theirs in zip(actual, expected, strict=True):
        assert same_bits(mine, theirs)


def test_side_file_names_the_outputs_of_an_excerpt() -> None:
    named = read(EXCERPT, beside=SideFile(outputs=("T23", "T26")))
    assert named.output_names == ("T23", "T26")
    with pytest.raises(FormatError, match=r"^shapes/outputs: 'T29' is no tensor of the dump"):
        read(EXCERPT, beside=SideFile(outputs=("T29",)))


# Whole dumps


@pytest.mark.parametrize("newer", [False, True], ids=["older", "newer"])
def test_whole_module(newer: bool) -> None:
    """All of Mistral's RoPE, as nvFuser prints it, is the definition's own graph."""
    named = read(print_dump(ROPE, newer))
    definition = read_nvfuser(ROPE)
    assert graph_key(named.graph) == graph_key(definition.graph)
    assert (named.input_names, named.output_names) == (definition.input_names, definition.output_names)


def test_small_dump() -> None:
    named = read(SMALL, filename="dump.txt")
    verify(named.graph)
    assert (named.input_names, named.output_names) == (("T0",), ("T2",))
    assert named.notes == ("the dump does not say how inputs lie in memory: T0 taken as dense",)


LAYOUTS = {
    "one line a statement": SMALL.replace("\n   =", " =").replace("\n   *", " *"),
    "many lines": SMALL.replace(" * double(0.5)", "\n*\n\tdouble(\n0.5 )").replace("{1}", "{ 1 }"),
    "Windows": SMALL.replace("\n", "\r\n"),
    "comments": SMALL.replace(
        "T2_g_float[bS4{1}, iS5{64}]\n   =", "// the end\nT2_g_float[bS4{1}, iS5{64}] # x\n   = /* y\n */"
    ),
    "no semicolons": SMALL.replace(";", ""),
    "semicolons": SMALL.replace("]);", "]) ;"),
    "closed by a brace": SMALL.replace("} // %kernel_math", "}"),
    "%kernel": SMALL.replace("%kernel_math", "%kernel"),
    "spaces in brackets": SMALL.replace("[", "[ ").replace("]", " ]"),
    "dtypes in the lists": SMALL.replace("iS1{64}]\n", "iS1{64}], __bfloat\n", 1).replace(
        "iS5{64}]\n", "iS5{64}], float\n", 1
    ),
    "rf": SMALL.replace("iS3{64}", "iS3{64}rf"),
    "in a log": f"[W509 16:47] Segmented_Fusion Dump:{{\n%kernel {{\n\n{SMALL}}} // Segmented_Fusion\n```\n'\"\n",
    "indented": SMALL.replace("Inputs:", "  Inputs:"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_the_text(layout: str) -> None:
    assert LAYOUTS[layout] != SMALL
    assert graph_key(read(LAYOUTS[layout]).graph) == graph_key(read(SMALL).graph)


def test_recognised_by_its_look() -> None:
    reader = next(r for r in READERS if r.name == "kernel_math")
    for text in (EXCERPT, SMALL, *LAYOUTS.values(), "def f(x):\n" + SMALL):
        assert reader.sniff(text)
    for text in (ROPE, "{}", "Inputs:\n  x\n", ""):
        assert not reader.sniff(text)


# Cut off


def outcome(text: str) -> NamedGraph | str:
    """The graph, or the place where the text is refused."""
    try:
        named = read_kernel_math(text)
    except FormatError as error:
        return error.place
    verify(named.graph)
    return named


def test_every_prefix_of_a_whole_dump_is_refused_by_line() -> None:
    """But for the one that ends behind the first statement, before any output: that is an excerpt."""
    whole = SMALL.index("} // %kernel_math") + 1
    accepted: set[str] = set()
    for end in range(whole):
        result = outcome(SMALL[:end])
        if isinstance(result, NamedGraph):
            assert result.output_names == ("T1",)
            accepted.add(SMALL[:end].rstrip())
        else:
            line, _, column = result.partition(":")
            assert 1 <= int(line) <= SMALL.count("\n", 0, end) + 1 and int(column) >= 1, result
    first = SMALL[: SMALL.index(";")]
    assert accepted == {first, first + ";"}


@pytest.mark.soak
def test_prefixes_of_the_module() -> None:
    """A cut inside a statement, or behind the first output, is refused; nothing but FormatError comes out."""
    text = print_dump(reduced(ROPE, 64))
    first_output = text.index("T31_g", text.index("%kernel_math"))
    rng = random.Random(5)
    for _ in range(60 if WHOLE else 20):
        end = rng.randrange(first_output, text.index("} // %kernel_math"))
        with pytest.raises(FormatError) as caught:
            read_kernel_math(text[:end])
        line = int(caught.value.place.partition(":")[0])
        assert line in (text.count("\n", 0, end), text.count("\n", 0, end) + 1), caught.value


def test_whatever_is_wrong_has_a_line() -> None:
    """Every token of a small dump dropped, doubled or exchanged: it is read, or refused with line and column."""
    tokens = list(re.finditer(r"[A-Za-z0-9_.%]+|\S", SMALL))
    read_ = refused = 0
    for at, token in enumerate(tokens):
        other = tokens[(7 * at + 3) % len(tokens)].group()
        for new in ("", token.group() * 2, other, "\x00", "9" * 30):
            text = SMALL[: token.start()] + new + SMALL[token.end() :]
            result = outcome(text)
            if isinstance(result, NamedGraph):
                read_ += 1
            else:
                assert re.fullmatch(r"[0-9]+:[0-9]+", result), result
                refused += 1
    assert refused > 300 and read_ > 5


CUT: dict[str, tuple[str, str]] = {
    "no brace": (SMALL.partition("} //")[0], r"11:17: the dump ends behind this without its closing '}'"),
    "in a statement": (SMALL.partition("\n   *")[0], r"10:33: the dump ends here, expected one of \+"),
    "before the semicolon": (SMALL.partition(";\n}")[0], r"11:17: the dump ends here, expected ';'"),
    "in the list": (SMALL.partition("Outputs")[0], r"2:33: the dump ends here, expected an input"),
    "in a tensor": (SMALL.partition(", iS5")[0], r"4:20: the dump ends here, expected ','"),
    "before the body": (SMALL.partition("%kernel")[0], r"4:30: the dump ends here, expected an output"),
    "nothing in the body": (
        SMALL.partition("T1_l")[0],
        r"6:14: the dump ends behind this .* output T2 is not computed",
    ),
    "an output is missing": (
        SMALL.replace("T2_g_float[bS4{1}, iS5{64}]\n\n", "T2_g_float[bS4{1}, iS5{64}]\n  T7_g_float[iS9{2}]\n\n"),
        r"5:3: output T7 is never computed; the dump is closed in 13:1",
    ),
    "one of two outputs": (
        SMALL.partition("} //")[0].replace("iS5{64}]\n\n", "iS5{64}]\n  T7_g_float[iS9{2}]\n\n"),
        r"12:17: the dump ends behind this without its closing '}', and output T7 is not computed",
    ),
    "no inputs": (SMALL.partition("Outputs")[2], r"4:1: expected the list 'Inputs:'"),
    "no lists": ("x", r"1:1: expected the list 'Inputs:'"),
    "two dumps": (SMALL + SMALL, r"14:1: Inputs: stands on line 1 and on line 14: two dumps"),
    "two bodies": (SMALL + "%kernel_math {\n}", r"14:1: %kernel_math stands on line 6 and on line 14: two dumps"),
    "no outputs": (SMALL.replace("  T2_g_float[bS4{1}, iS5{64}]\n\n", "\n"), r"11:1: the dump has no outputs"),
}


@pytest.mark.parametrize("case", CUT)
def test_cut_off(case: str) -> None:
    text, message = CUT[case]
    with pytest.raises(FormatError, match=f"^{message}"):
        read_kernel_math(text)


# Limits


def test_limits() -> None:
    with pytest.raises(FormatError, match=r"^the body has"):
        read_kernel_math(" " * (LIMITS.body_bytes + 1))
    for deep in ("(" * 10**5, "-" * 10**5, "ceilDiv(" * 10**5):
        with pytest.raises(FormatError, match=r"^2:\d+: more than 200 brackets and operators are open"):
            read_kernel_math(f"Inputs:\n  T0_g_float[iS0{{{deep}")
    axes = ", ".join(f"iS{i}{{2}}" for i in range(13))
    with pytest.raises(FormatError, match=r"^2:3: rank 13 is above the limit of 12"):
        read_kernel_math(f"Inputs:\n  T0_g_float[{axes}]\n")
    with pytest.raises(FormatError, match=r"^2:3: shape .* at most"):
        read_kernel_math(f"Inputs:\n  T0_g_float[iS0{{{2**41}}}]\n")
    inputs = "".join(f"  T{i}_g_float[iS{i}{{2}}]\n" for i in range(LIMITS.inputs + 1))
    with pytest.raises(FormatError, match=rf"^{LIMITS.inputs + 2}:3: 4,097 inputs, at most 4,096"):
        read_kernel_math(f"Inputs:\n{inputs}")


def test_long_chain() -> None:
    """Thousands of statements are read without recursion."""
    count = 3000
    lines = [
        f"T{i}_l_float[iS{i}{{2}}]\n   = -T{i - 1}_{'l' if i > 1 else 'g'}_float[iS{i - 1}{{2}}];"
        for i in range(1, count)
    ]
    last = f"T{count - 1}_l_float[iS{count - 1}{{2}}]"
    text = "\n".join(["Inputs:", "  T0_g_float[iS0{2}]", "Outputs:", f"  {last}", "%kernel_math {", *lines, "}"])
    assert len(read_kernel_math(text).graph.nodes) == count


def test_graph_outputs_are_dense() -> None:
    """Whatever the side file says of inputs."""
    named = read(SMALL, beside=SideFile(strides={"T0": (128, 2)}))
    assert named.graph.inputs[0].strides == (64, 2)
    assert named.graph.outputs[0] == OutputSpec(_only(named.graph), (64, 1))
    assert named.notes == ()


def _only(graph: Graph) -> Node:
    return graph.outputs[0].node
