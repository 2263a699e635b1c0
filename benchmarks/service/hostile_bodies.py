"""Hostile bodies, grown from seeds: for every reader what is deep, long, wide, huge, repeated or mangled.

`bodies(count, seed)` gives the same bodies for the same seed. Each has an address, a media type and bytes.
"""

import json
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusion_ir.formats import read
from fusion_ir.formats.json.wire import to_wire

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RESOLVE, BATCHES = "/v1/plans:resolve", "/v1/batches"
JSON, LINES = "application/json", "application/x-ndjson"

_TEXT = "fuseplan.graph 1\nin0 x: f32[8] align 16\n%0 = in0: f32[8]\n%1 = exp(%0): f32[8]\nout0 y: %1\n"
_NVFUSER = """def nvfuser_fusion_id0(fd : FusionDefinition) -> None :
    T0 = fd.define_tensor(shape=[8, 8], contiguity=[True, True], dtype=DataType.Float, stride_order=[1, 0])
    S1 = fd.define_scalar(2.0, dtype=DataType.Double)
    T2 = fd.ops.mul(T0, S1)
    T3 = fd.ops.sum(T2, dims=[1], keepdim=False, dtype=DataType.Null)
    fd.add_output(T3)
"""
_KERNEL_MATH = """Inputs:
  T0_g_float[iS0{8}, iS1{8}]
Outputs:
  T1_g_float[iS2{8}, iS3{8}]

%kernel_math {
T1_g_float[iS2{8}, iS3{8}]
   = exp(T0_g_float[iS0{8}, iS1{8}]);
}
"""
_MIGRAPHX = """x = @param:x -> float_type, {2, 3}, {3, 1}
@1 = exp(x) -> float_type, {2, 3}, {3, 1}
@2 = @return(@1)
"""
_WIRE: dict[str, Any] = {
    "format": "fuseplan.graph",
    "version": 1,
    "inputs": [{"name": "x", "shape": [8, 8], "dtype": "f32"}],
    "nodes": [
        {"name": "a", "op": "softmax", "args": ["x"], "attrs": {"axis": -1}},
        {"name": "b", "op": "mul", "args": ["a"], "attrs": {"y": 0.5}},
        {"name": "c", "op": "stack", "args": ["a", "b"], "attrs": {"axis": 0}},
    ],
    "outputs": [{"node": "c"}],
}
SOURCES = {"text": _TEXT, "nvfuser": _NVFUSER, "kernel_math": _KERNEL_MATH, "migraphx": _MIGRAPHX}
NUMBERS = (
    0,
    -1,
    1,
    2**31,
    2**40,
    2**40 + 1,
    2**63 - 1,
    2**63,
    -(2**63),
    10**30,
    1e308,
    5e-324,
    True,
    None,
    "1",
    [1],
    {},
)
WORDS = (
    "\x1b[2J\x1b]0;x\x07",
    "\x00",
    "a" * 300,
    "a" * 100_000,
    "\u202e\u2028",
    "\ud800",
    "'; --",
    "../../etc/passwd",
    "",
)
COMPOSITES = (
    "softmax",
    "log_softmax",
    "gelu",
    "silu",
    "layer_norm",
    "rms_norm",
    "var_mean",
    "cumsum",
    "std",
    "logsumexp",
)


class Chance(random.Random):
    """Numbers of chance, and how large what they make may be: 1 for all there is."""

    def __init__(self, seed: int, scale: float) -> None:
        super().__init__(seed)
        self.scale = scale


@dataclass(frozen=True)
class Hostile:
    """One request. `how` names what grew it; `cut`: bytes after which the client goes away, `drip`: it sends slowly."""

    how: str
    content: bytes
    address: str = RESOLVE
    media_type: str = JSON
    cut: int | None = None
    drip: bool = False


def bodies(count: int, seed: int = 0, scale: float = 1.0) -> Iterator[Hostile]:
    """So many of them. scale: of their sizes."""
    rng = Chance(seed, scale)
    wires = [_WIRE, *(to_wire(read(path.read_text(), "nvfuser")) for path in sorted(EXAMPLES.glob("*.nvfuser.py"))[:2])]
    for _ in range(count):
        how = rng.choice(list(GROWERS))
        made = GROWERS[how](rng, rng.choice(wires))
        hostile = made if isinstance(made, Hostile) else Hostile(how, made)
        ending = rng.random()
        if ending < 0.03:
            hostile = Hostile(
                f"{how}, cut off", hostile.content, hostile.address, hostile.media_type, cut=rng.randrange(0, 5000)
            )
        elif ending < 0.035:
            hostile = Hostile(f"{how}, dripping", hostile.content[:300], hostile.address, hostile.media_type, drip=True)
        yield hostile


def _size(rng: Chance, most: int) -> int:
    """From 1 to `most` or a share of it, every order of magnitude alike."""
    return int(max(1.0, most * rng.scale) ** rng.random())


def _dumps(value: object) -> bytes:
    return json.dumps(value).encode()


def _graph(nodes: list[dict[str, Any]], outputs: list[str], inputs: list[dict[str, Any]] | None = None) -> bytes:
    graph = {**_WIRE, "nodes": nodes, "outputs": [{"node": o} for o in outputs]}
    return _dumps({"graph": graph | ({} if inputs is None else {"inputs": inputs})})


def _source(rng: Chance, text: str, format: str) -> bytes:
    return _dumps({"source": text} | ({"format": format} if rng.random() < 0.7 else {}))


def mangled(rng: Chance, wire: dict[str, Any]) -> bytes:
    """A few members of a graph changed, dropped, or given another's value."""
    value = {"graph": json.loads(json.dumps(wire)), "seconds": 1.0}
    for _ in range(rng.randrange(1, 4)):
        at: Any = value
        while isinstance(at, dict | list) and at:
            key = rng.choice(list(at) if isinstance(at, dict) else range(len(at)))
            if not isinstance(at[key], dict | list) or not at[key] or rng.random() < 0.1:
                at[key] = deepcopy(
                    rng.choice((*NUMBERS, *WORDS, rng.choice(COMPOSITES), "f8e4m3", ["x"] * _size(rng, 5000)))
                )
                break
            at = at[key]
    return _dumps(value)


def flipped(rng: Chance, wire: dict[str, Any]) -> bytes:
    """Bytes of a body changed."""
    content = bytearray(_dumps({"graph": wire}))
    for _ in range(_size(rng, 20)):
        content[rng.randrange(len(content))] = rng.randrange(256)
    return bytes(content)


def composites(rng: Chance, _: dict[str, Any]) -> bytes:
    """Many ops that expand."""
    count, op = _size(rng, 19_998), rng.choice(COMPOSITES)
    names = [f"t{i}" for i in range(count)]
    nodes = [
        {"name": n, "op": op, "args": ["x" if i == 0 or rng.random() < 0.3 else names[i - 1]]}
        for i, n in enumerate(names)
    ]
    return _graph(nodes, [names[-1]])


def wide(rng: Chance, _: dict[str, Any]) -> bytes:
    """Stacks and concatenations of many operands, on top of each other."""
    count, depth = _size(rng, 5000), rng.randrange(1, 6)
    nodes = [
        {"name": f"s{i}", "op": rng.choice(("stack", "cat")), "args": [f"s{i - 1}" if i else "x"] * count}
        for i in range(depth)
    ]
    return _graph(nodes, [f"s{depth - 1}"])


def huge(rng: Chance, _: dict[str, Any]) -> bytes:
    """Tensors of very many elements, strides and axes."""
    shape = [rng.choice((1, 2, 2**10, 2**20, 2**31, 2**40, 2**62, 0)) for _ in range(rng.randrange(0, 14))]
    row: dict[str, Any] = {"name": "x", "shape": shape, "dtype": rng.choice(("f32", "bool", "f64", "bf16", "i64"))}
    if rng.random() < 0.3:
        row["strides"] = [rng.choice((0, 1, 2**40, 2**62)) for _ in shape]
    op = rng.choice(("exp", "sum", "softmax", "cumsum", "triu", "flatten", "argmax", "var_mean", "matmul"))
    return _graph([{"name": "t", "op": op, "args": ["x", "x"][: 1 + (op == "matmul")]}], ["t"], [row])


def members(rng: Chance, _: dict[str, Any]) -> bytes:
    """Objects of very many members, the same again and again or all different."""
    count, same = _size(rng, 700_000), rng.random() < 0.5
    return b"{" + b",".join(b'"k%d":1' % (0 if same else i) for i in range(count)) + b"}"


def nested(rng: Chance, _: dict[str, Any]) -> bytes:
    """Brackets in brackets."""
    count = _size(rng, 2_000_000)
    opening = rng.choice((b"[", b'{"a":', b'{"graph":[', b"(", b"[[],"))
    return opening * (count // len(opening) + 1)


def numbers(rng: Chance, _: dict[str, Any]) -> bytes:
    """Numbers of many digits."""
    digits = rng.choice((b"9", b"1.", b"0.0", b"-", b"1e", b"1e-")) + b"9" * _size(rng, 1_000_000)
    return b'{"graph_key": "%s", "%s": %s}' % (b"0" * 64, rng.choice((b"seconds", b"memory_bytes", b"what")), digits)


def named(rng: Chance, wire: dict[str, Any]) -> bytes:
    """Names with control characters, of any length, and the same twice."""
    text = json.dumps({"graph": wire})
    word = json.dumps(rng.choice(WORDS) * _size(rng, 20))
    return text.replace(json.dumps(wire["inputs"][0]["name"]), word).encode()


def repeated(rng: Chance, _: dict[str, Any]) -> bytes:
    """A text with one of its pieces very often: what is quadratic in anything shows here."""
    format = rng.choice(list(SOURCES))
    text = SOURCES[format]
    begin = rng.randrange(len(text))
    piece = text[begin : begin + rng.choice((1, 1, 2, 5, 20, 200))]
    return _source(rng, text[:begin] + piece * (_size(rng, 500_000) // len(piece) + 1) + text[begin:], format)


def spaced(rng: Chance, _: dict[str, Any]) -> bytes:
    """A text behind, or of, very many blanks, lines, comments or openings."""
    format = rng.choice(list(SOURCES))
    piece = rng.choice(
        (
            " ",
            "\n",
            "\t",
            "\r\n",
            "#",
            "/*",
            "//",
            "(",
            "[",
            "{",
            "-",
            '"',
            "\\",
            "def ",
            " = ",
            "%",
            "@",
            ",",
            "Inputs:\n",
        )
    )
    fill = piece * (_size(rng, 500_000) // len(piece) + 1)
    text = SOURCES[format]
    at = rng.choice((0, rng.randrange(len(text)), len(text)))
    return _source(rng, rng.choice(("", "x")) + text[:at] + fill + text[at:], format)


def scrambled(rng: Chance, _: dict[str, Any]) -> bytes:
    """A text with characters changed, lines exchanged, numbers made huge."""
    format = rng.choice(list(SOURCES))
    lines = SOURCES[format].split("\n")
    for _change in range(rng.randrange(1, 5)):
        at = rng.randrange(len(lines))
        match rng.randrange(4):
            case 0:
                lines[at] = "".join(c if rng.random() > 0.05 else chr(rng.randrange(1, 0x250)) for c in lines[at])
            case 1:
                lines.insert(at, rng.choice(lines))
            case 2:
                lines[at] = (
                    lines[at].replace("8", str(rng.choice(NUMBERS[:11]))).replace("3", str(rng.choice(NUMBERS[:11])))
                )
            case _:
                del lines[at]
                lines = lines or [""]
    return _source(rng, "\n".join(lines), format)


def statements(rng: Chance, _: dict[str, Any]) -> bytes:
    """A long program in a reader's own language."""
    count = _size(rng, 20_000)
    match rng.randrange(3):
        case 0:
            body = "".join(f"%{i + 1} = exp(%{i}): f32[8]\n" for i in range(count))
            return _source(rng, f"fuseplan.graph 1\nin0: f32[8]\n%0 = in0: f32[8]\n{body}out0: %{count}\n", "text")
        case 1:
            body = "".join(f"    T{i + 1} = fd.ops.gelu(T{i})\n" for i in range(count))
            tensor = "fd.define_tensor(shape=[8], contiguity=[True], dtype=DataType.Float)"
            head = f"def f(fd: FusionDefinition):\n    T0 = {tensor}\n"
            return _source(rng, f"{head}{body}    fd.add_output(T{count})\n", "nvfuser")
        case _:
            type_ = "float_type, {8}, {1}"
            body = "".join(f"@{i + 1} = exp({f'@{i}' if i else 'x'}) -> {type_}\n" for i in range(count))
            return _source(rng, f"x = @param:x -> {type_}\n{body}@{count + 1} = @return(@{count})\n", "migraphx")


def beside(rng: Chance, _: dict[str, Any]) -> bytes:
    """A side file of many or wrong members."""
    count = _size(rng, 30_000)
    shapes = rng.choice(
        (
            {"extents": {f"i{i}": rng.choice(NUMBERS) for i in range(count)}},
            {"inputs": {rng.choice(WORDS): {"shape": [rng.choice(NUMBERS)] * _size(rng, 100)} for _ in range(5)}},
            {"values": dict.fromkeys((f"d{i}" for i in range(count)), 1e308)},
            {"outputs": ["T1"] * count},
            {"inputs": {"T0": {"shape": [2**40, 2**40], "strides": [2**40, 1], "dtype": "f32"}}},
        )
    )
    format = rng.choice(list(SOURCES))
    return _dumps({"source": SOURCES[format], "format": format, "shapes": shapes})


def otherwise(rng: Chance, wire: dict[str, Any]) -> Hostile:
    """Another media type, address or method's body."""
    content = _dumps({"graph": wire, "custom_id": "a"})
    media_type = rng.choice(
        ("", "text/plain", "application/json; charset=utf-16", "multipart/form-data", LINES, "a" * 2000)
    )
    return Hostile("otherwise", content, rng.choice((RESOLVE, BATCHES)), media_type)


def batch(rng: Chance, wire: dict[str, Any]) -> Hostile:
    """Lines, good and bad."""
    lines = [GROWERS[rng.choice(("mangled", "huge", "scrambled", "named"))](rng, wire) for _ in range(_size(rng, 30))]
    content = b"\n".join(
        line.replace(b"{", b'{"custom_id": "%d", ' % i, 1) for i, line in enumerate(lines) if isinstance(line, bytes)
    )
    return Hostile("batch", content + b"\n" * _size(rng, 100_000), BATCHES, LINES)


GROWERS: dict[str, Callable[[Chance, dict[str, Any]], bytes | Hostile]] = {
    grower.__name__: grower
    for grower in (
        mangled, flipped, composites, wide, huge, members, nested, numbers, named, repeated, spaced, scrambled,
        statements, beside, otherwise, batch,
    )
}  # fmt: skip
