"""Broken input of every format: readers read it or raise FormatError, and nothing else."""

import json
import random
from collections.abc import Callable

import pytest

from fusion_ir.core.named import NamedGraph
from fusion_ir.errors import FormatError
from fusion_ir.formats import READERS, read
from fusion_ir.formats.json.wire import from_wire, to_wire
from fusion_ir.formats.json.wire_ops import WIRE_OPS
from fusion_ir.ops import OPS
from fusion_ir.text.printing import print_graph
from fusion_ir.verify import verify
from tests.support.small_graphs import random_graph
from tests.support.whole import WHOLE
from tests.unit.formats.test_json import wire
from tests.unit.formats.test_kernel_math import SMALL
from tests.unit.formats.test_kernel_math_ops import LEFT, RIGHT, X, cat, dump
from tests.unit.formats.test_migraphx import BODY, EXCERPT
from tests.unit.formats.test_migraphx_refused import CALL
from tests.unit.formats.test_nvfuser import definition

NVFUSER = [
    definition(
        "T1, T2 = fd.ops.var_mean(T0, dims=[1], correction=0, keepdim=True)", "T3 = fd.ops.pad(T0, [0, -2, 1, 1], 0.5)"
    ),
    definition(
        "S2 = fd.define_scalar(1e-05, dtype=DataType.Double)",
        "T1 = fd.ops.add(T0, S2)",
        "T4 = fd.ops.cat([T0, X], dim=-1)",
    ),
    definition(
        "T1 = fd.ops.slice(T0, start_indices=[0, 4], end_indices=[4, 8], strides=[1, 2])",
        "T5 = fd.ops.cast(T1, DataType.Int)",
    ),
    definition(
        "T1 = fd.ops.broadcast_in_dim(T0, shape=[2, 4, 8], broadcast_dims=[1, 2])", "T6 = fd.ops.matmul(T1, T1)"
    ),
]
B = "T2_g_bool[iS4{4}, iS5{8}]"
KERNEL_MATH = [
    dump("T2_g_float[iS20{4}, rS21{8}]", f"reduction( {X}, op = add, initial value = double(0), allreduce = false )"),
    dump("T2_g_float[iS21{8}, iS20{4}]", f"Set.Permute( {X}, cache_op=Streaming )", scalars="i7 = ( 3 + 4 ) * 2;\n"),
    dump("T2_g_float[iS20{2}, iS21{4}]", f"slice( {X}, {{ {{0, 4, 2}} {{4, 8, 1}} }} )"),
    dump("T3_g_float[iS20{4}, iS21{8}]", f"where({B}\n  , {X}\n  , double(0.5));", X, B),
    cat(LEFT, RIGHT),
]
GRAPHS = [NamedGraph.unnamed(random_graph(seed)) for seed in range(25)]
TEXTS: dict[str, list[str]] = {
    "text": [print_graph(g) for g in GRAPHS],
    "json": [json.dumps(wire()), *(json.dumps(to_wire(g)) for g in GRAPHS)],
    "nvfuser": NVFUSER,
    "kernel_math": [SMALL, *KERNEL_MATH],
    "migraphx": [EXCERPT, CALL + BODY],
}
PIECES = [
    '"',
    "'",
    "[",
    "]",
    "{",
    "}",
    "(",
    ")",
    ",",
    ":",
    "=",
    "-",
    "9",
    "0",
    "1e999",
    "NaN",
    "null",
    "true",
    "\\",
    "\n",
    " ",
    "\x00",
    "\ud800",
    "é",
    "%0",
    "in0",
    "None",
    "lambda:",
    "**",
    "-1",
    "99999999999999999999",
    "T0",
    "fd",
    "x",
]


def broken(rng: random.Random, text: str) -> str:
    """One to three changes: a piece put in, characters dropped, doubled or exchanged, the end cut off."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text) + 1)
        until = min(len(text), at + rng.choice((0, 1, 1, 2, 5, 20)))
        match rng.randrange(5):
            case 0:
                text = text[:at] + rng.choice(PIECES) + text[at:]
            case 1:
                text = text[:at] + text[until:]
            case 2:
                text = text[:until] + text[at:]
            case 3:
                text = text[:at] + rng.choice(PIECES) + text[until:]
            case _:
                text = text[:at] if rng.random() < 0.1 else text.replace(text[at:until] or "\n", rng.choice(PIECES), 1)
    return text


def survives(action: Callable[[], NamedGraph]) -> bool:
    """Whether the action gave a graph, which then must be sound; False for FormatError."""
    try:
        named = action()
    except FormatError as error:
        message = str(error)
    else:
        verify(named.graph)
        return True
    assert len(message) < 2000
    return False


@pytest.mark.soak
@pytest.mark.parametrize("format", [r.name for r in READERS])
def test_broken_texts(format: str) -> None:
    rng = random.Random(format)
    read_, count = 0, 2500 if WHOLE else 800
    for _ in range(count):
        text = broken(rng, rng.choice(TEXTS[format]))
        read_ += survives(lambda text=text: read(text, format=format))
    assert 0 < read_ < count


def test_broken_values() -> None:
    """The wire as a value: a random part of it is replaced by something of another kind, or by another op's name."""
    rng = random.Random(7)
    others: list[object] = [
        None,
        True,
        -1,
        0,
        2**63,
        1.5,
        float("nan"),
        "",
        "x",
        "f32",
        "f32:0x0",
        [],
        [1, -1],
        [[1]],
        {},
        {"a": 1},
        "\ud800",
    ]
    ops = sorted({*OPS, *WIRE_OPS})
    read_ = 0
    for _ in range(3000):
        value = json.loads(rng.choice(TEXTS["json"]))
        for _ in range(rng.randint(1, 2)):
            holder: object = value
            while True:
                keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))  # type: ignore[arg-type]
                if not keys:
                    break
                key = rng.choice(keys)
                below = holder[key]  # type: ignore[index]
                if isinstance(below, dict | list) and below and rng.random() < 0.9:
                    holder = below
                    continue
                holder[key] = rng.choice(ops) if key == "op" else rng.choice(others)  # type: ignore[index]
                break
        read_ += survives(lambda value=value: from_wire(value))
    assert 0 < read_ < 3000


def test_every_op_with_every_kind_of_argument() -> None:
    """Each op of the wire with random operands and attributes, most of them wrong."""
    rng = random.Random(11)
    inputs = [
        {"name": "a", "shape": [2, 3], "dtype": "f32"},
        {"name": "b", "shape": [3], "dtype": "bf16"},
        {"name": "c", "shape": [], "dtype": "i64"},
        {"name": "d", "shape": [2, 0], "dtype": "bool"},
        {"name": "e", "shape": [2, 3, 4], "dtype": "i32"},
    ]
    values: list[object] = [
        0,
        1,
        -1,
        2,
        2**62,
        -(2**62),
        0.5,
        1e300,
        True,
        None,
        [0],
        [-1],
        [0, 1],
        [1, 0],
        [2, 3],
        [1] * 13,
        [2**40, 2**40],
        "f32",
        "i64",
        "bool",
        "f32:0x7fc00000",
        "i64:0x05",
        "none",
        "tanh",
        "mean",
        [],
    ]
    names = [
        "axis",
        "axes",
        "shape",
        "dims",
        "dtype",
        "value",
        "keepdims",
        "correction",
        "start",
        "stop",
        "step",
        "low",
        "high",
        "eps",
        "diagonal",
        "y",
        "weight",
        "exponent",
        "stream",
        "seed",
        "offset",
        "reduction",
        "first",
        "last",
        "probability",
    ]
    for op in sorted({*OPS, *WIRE_OPS}):
        for _ in range(40):
            args = rng.choices([i["name"] for i in inputs], k=rng.randint(0, 3))
            attrs = {name: rng.choice(values) for name in rng.sample(names, rng.randint(0, 3))}
            if op in OPS and rng.random() < 0.5:
                attrs = {name: rng.choice(values) for name in OPS[op].attrs}
            node = {"name": "y", "op": op, "args": args, "attrs": attrs}
            several = {"node": "y.0"} if op in ("var_mean", "dropout") else {"node": "y"}
            survives(lambda node=node, several=several: from_wire(wire(inputs=inputs, nodes=[node], outputs=[several])))
