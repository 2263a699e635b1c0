"""Bad input: each a 4xx problem that names the place, echoes nothing long, and leaves nothing behind."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from service.errors import PROBLEM_TYPES
from tests.support.service_app import Running, running, stored, wire

URL = "/v1/plans:resolve"
HEADERS = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One application for all of this: `refused` asserts that it stays empty."""
    with running(tmp_path_factory.mktemp("closed")) as started:
        yield started


def graph(**changes: Any) -> dict[str, Any]:
    return wire() | changes


def node(name: str = "t0", op: str = "exp", args: tuple[str, ...] = ("x",), **rest: Any) -> dict[str, Any]:
    return {"name": name, "op": op, "args": list(args), **rest}


def input_(**changes: Any) -> dict[str, Any]:
    return {"name": "x", "shape": [8], "dtype": "f32"} | changes


def with_input(**changes: Any) -> dict[str, Any]:
    return graph(inputs=[input_(**changes)])


def with_nodes(*nodes: dict[str, Any], output: str = "t0") -> dict[str, Any]:
    return graph(nodes=list(nodes), outputs=[{"node": output}])


NASTY = "a\"b\n<script>'\x00\x7f" * 20

# name, body, status, the problem's type, what its place starts with
RAW = [
    ("empty", b"", 400, "bad-json", "1:1"),
    ("no JSON", b"graph", 400, "bad-json", "1:1"),
    ("cut off", json.dumps({"graph": wire()}).encode()[:-40], 400, "bad-json", "1:"),
    ("cut off in a string", b'{"graph": {"format": "fuse', 400, "bad-json", "1:"),
    ("trailing comma", b'{\n  "seconds": 3,\n}', 400, "bad-json", "3:"),
    ("not UTF-8", b'{"graph_key": "\xff"}', 400, "bad-json", "1:"),
    ("UTF-16", '{"seconds": 3}'.encode("utf-16"), 400, "bad-json", "1:"),
    ("nested too deeply", b"[" * 200_000, 400, "bad-json", "1:"),
    ("an integer of 5,000 digits", b'{"seconds": 1' + b"0" * 5000 + b"}", 400, "bad-json", "1:1"),
    ("a list", b"[1, 2]", 422, "bad-request", "/"),
    ("null", b"null", 422, "bad-request", "/"),
    ("a key twice", b'{"graph_key": "a", "graph_key": "b"}', 400, "bad-json", ""),
    ("NaN", b'{"graph_key": "%s", "seconds": NaN}' % (b"0" * 64), 422, "bad-request", "/seconds"),
    ("1e999", b'{"graph_key": "%s", "seconds": 1e999}' % (b"0" * 64), 422, "bad-request", "/seconds"),
    ("-Infinity", b'{"graph_key": "%s", "seconds": -Infinity}' % (b"0" * 64), 422, "bad-request", "/seconds"),
    ("a lone surrogate in a key", b'{"graph_key": "\\ud800"}', 422, "bad-request", "/graph_key"),
    ("a lone surrogate in source", b'{"source": "\\ud800"}', 422, "bad-graph", "1:1"),
    ("a lone surrogate as a member", b'{"\\udfff": 1}', 422, "bad-request", "/"),
]


@pytest.mark.parametrize(("body", "status", "slug", "place"), [c[1:] for c in RAW], ids=[c[0] for c in RAW])
def test_bytes(closed: Running, body: bytes, status: int, slug: str, place: str) -> None:
    refused(closed, body, status, slug, place)


BODIES: list[tuple[str, Any, str, str]] = [
    ("no graph", {}, "bad-request", "/"),
    ("two graphs", {"graph": wire(), "graph_key": "0" * 64}, "bad-request", "/"),
    ("an unknown member", {"graph": wire(), "tenant": "me"}, "bad-request", "/tenant"),
    ("an unknown target", {"graph": wire(), "target": "tpu"}, "bad-request", "/target"),
    ("a target with a path", {"graph": wire(), "target": "cuda:../0"}, "bad-request", "/target"),
    ("seconds as text", {"graph": wire(), "seconds": "3"}, "bad-request", "/seconds"),
    ("no seconds", {"graph": wire(), "seconds": 0}, "bad-request", "/seconds"),
    ("a year", {"graph": wire(), "seconds": 3e7}, "bad-request", "/seconds"),
    ("more seconds than the setting", {"graph": wire(), "seconds": 3601}, "bad-request", "/seconds"),
    ("unknown numerics", {"graph": wire(), "numerics": "fast"}, "bad-request", "/numerics"),
    ("no memory", {"graph": wire(), "memory_bytes": 0}, "bad-request", "/memory_bytes"),
    ("less than no memory", {"graph": wire(), "memory_bytes": -1}, "bad-request", "/memory_bytes"),
    ("memory with a unit", {"graph": wire(), "memory_bytes": "8GiB"}, "bad-request", "/memory_bytes"),
    ("half a byte", {"graph": wire(), "memory_bytes": 1.5}, "bad-request", "/memory_bytes"),
    ("2^63 bytes", {"graph": wire(), "memory_bytes": 2**63}, "bad-request", "/memory_bytes"),
    ("an unknown sampler", {"graph": wire(), "sampler": "annealing"}, "bad-request", "/sampler"),
    ("a sampler that is not allowed", {"graph": wire(), "sampler": "cmaes"}, "bad-request", "/sampler"),
    ("code as a sampler", {"graph": wire(), "sampler": "os.system"}, "bad-request", "/sampler"),
    ("a sampler that is no text", {"graph": wire(), "sampler": ["tpe"]}, "bad-request", "/sampler"),
    ("a short key", {"graph_key": "abc"}, "bad-request", "/graph_key"),
    ("an upper-case key", {"graph_key": "A" * 64}, "bad-request", "/graph_key"),
    ("a format alone", {"graph": wire(), "format": "json"}, "bad-request", "/format"),
    ("shapes alone", {"graph": wire(), "shapes": {}}, "bad-request", "/shapes"),
    ("shapes of a kind", {"source": "x", "shapes": {"extents": {"i0": -1}}}, "bad-request", "/shapes/extents/i0"),
    ("an unknown member of shapes", {"source": "x", "shapes": {"sizes": {}}}, "bad-request", "/shapes/sizes"),
    ("an unknown format", {"source": "x", "format": "pickle"}, "bad-request", "/format"),
    ("a graph that is a list", {"graph": []}, "bad-request", "/graph"),
]


@pytest.mark.parametrize(("body", "slug", "place"), [c[1:] for c in BODIES], ids=[c[0] for c in BODIES])
def test_requests(closed: Running, body: Any, slug: str, place: str) -> None:
    refused(closed, json.dumps(body).encode(), 422, slug, place)


GRAPHS: list[tuple[str, dict[str, Any], str]] = [
    ("unknown op", with_nodes(node(op="frobnicate")), "/graph/nodes/0"),
    ("no operand", with_nodes(node(args=())), "/graph/nodes/0"),
    ("too many operands", with_nodes(node(args=("x", "x"))), "/graph/nodes/0"),
    ("a missing attribute", with_nodes(node(op="reshape")), "/graph/nodes/0"),
    ("an unknown attribute", with_nodes(node(attrs={"speed": 1})), "/graph/nodes/0"),
    ("shapes that do not go together", with_nodes(
        node("c", "full", (), attrs={"shape": [7], "value": 1.0, "dtype": "f32"}), node(op="add", args=("x", "c"))
    ), "/graph/nodes/"),
    ("a dtype that the op does not take", with_nodes(node(op="bitwise_not")), "/graph/nodes/0"),
    ("a cycle", with_nodes(node("t0", "exp", ("t1",)), node("t1", "exp", ("t0",))), "/graph/nodes/"),
    ("a node that reads itself", with_nodes(node(args=("t0",))), "/graph/nodes/0"),
    ("a missing name", with_nodes(node(args=("nobody",))), "/graph/nodes/0/args/0"),
    ("a missing output", with_nodes(node(), output="nobody"), "/graph/outputs/0"),
    ("a name twice", with_nodes(node(), node()), "/graph/nodes/1"),
    ("the name of an input", with_nodes(node("x")), "/graph/nodes/0"),
    ("no outputs", graph(outputs=[]), "/graph/outputs"),
    ("an empty name", with_nodes(node("")), "/graph/nodes/0/name"),
    ("a long name", with_nodes(node("n" * 100_000)), "/graph/nodes/0/name"),
    ("a lone surrogate as a name", with_nodes(node("\ud800"), output="\ud800"), "/graph/nodes/0/name"),
    ("rank 13", with_input(shape=[1] * 13), "/graph/inputs/0/shape"),
    ("2^63 elements", with_input(shape=[2**32, 2**31]), "/graph/inputs/0/shape"),
    ("an extent of 2^63", with_input(shape=[2**63]), "/graph/inputs/0/shape"),
    ("a negative extent", with_input(shape=[-1]), "/graph/inputs/0/shape"),
    ("a fraction as extent", with_input(shape=[2.5]), "/graph/inputs/0/shape"),
    ("true as extent", with_input(shape=[True]), "/graph/inputs/0/shape"),
    ("an unknown dtype", with_input(dtype="f128"), "/graph/inputs/0/dtype"),
    ("negative strides", with_input(strides=[-1]), "/graph/inputs/0/strides"),
    ("overlapping strides", with_input(shape=[4, 4], strides=[2, 1]), "/graph/inputs/0/strides"),
    ("too few strides", with_input(shape=[4, 4], strides=[4]), "/graph/inputs/0/strides"),
    ("an odd alignment", with_input(alignment=3), "/graph/inputs/0/alignment"),
    ("NaN as an extent", with_input(shape=[float("nan")]), "/graph/inputs/0/shape"),
    ("an infinite extent", with_input(shape=[float("inf")]), "/graph/inputs/0/shape"),
    ("an unknown member", graph(speed=1), "/graph/speed"),
    ("another version", graph(version=2), "/graph/version"),
    ("code as an op", with_nodes(node(op="__import__('os').system('id')")), "/graph/nodes/0"),
    ("100,000 nodes", with_nodes(*(node(f"t{i}") for i in range(100_000))), "/graph/nodes"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "place"), [c[1:] for c in GRAPHS], ids=[c[0] for c in GRAPHS])
def test_graphs(closed: Running, body: dict[str, Any], place: str) -> None:
    refused(closed, json.dumps({"graph": body}).encode(), 422, "bad-graph", place)


SOURCES = [
    ("nvfuser", "__import__('os').system('touch /tmp/x')"),
    ("nvfuser", "def nvfuser_fusion_id0(fd):\n    T0 = fd.ops.add(__import__('os'), 1)\n"),
    ("nvfuser", "def f(fd:\n"),
    ("text", "fuseplan.graph 1\n%0 = exec(): f32[1]\nout0: %0\n"),
    ("text", ""),
    ("json", "{"),
    ("kernel_math", "Inputs:\n  T0_g_float[iS0{4}"),
    (None, "\x00" * 50),
    (None, "nothing that anyone knows"),
]


@pytest.mark.parametrize(("format_", "source"), SOURCES)
def test_sources(closed: Running, format_: str | None, source: str) -> None:
    body = {"source": source} | ({"format": format_} if format_ else {})
    refused(closed, json.dumps(body).encode(), 422, "bad-graph", "")


def test_names_full_of_quotes_and_newlines_are_names(service: Running) -> None:
    names = (NASTY[:200].replace("\x00", ""), "out'\"\n")
    response = service.client.post(URL, json={"graph": wire(names=names)})
    assert response.status_code == 202


def test_bodies_that_are_no_json_by_their_header(service: Running) -> None:
    for headers in ({"Content-Type": "text/plain"}, {"Content-Type": "application/x-www-form-urlencoded"}, {}):
        response = service.client.post(URL, content=json.dumps({"graph": wire()}).encode(), headers=headers)
        assert (response.status_code, response.json()["place"]) == (415, "Content-Type")
    assert stored(service.store) == (0, 0)


def refused(service: Running, body: bytes, status: int, slug: str, place: str) -> None:
    response = service.client.post(URL, content=body, headers=HEADERS)
    problem = response.json()
    assert response.status_code == status, problem
    assert problem["type"].startswith(f"/errors/{slug}"), problem
    assert problem["type"].removeprefix("/errors/") in PROBLEM_TYPES
    assert problem["place"].startswith(place), problem
    assert problem["place"], problem
    assert problem["detail"]
    assert len(response.content) < 2000
    assert stored(service.store) == (0, 0)
    assert service.store.devices.devices() == []


@pytest.mark.parametrize(
    ("members", "detail"),
    [
        ({"seconds": -1}, "Input should be greater than or equal to 0.1, got -1"),
        ({"seconds": 3601}, "Expected at most 3600 seconds (setting max_seconds), got 3601."),
        ({"seconds": True}, "Input should be a valid number, got true"),
        ({"numerics": "fast"}, "Input should be 'exact', 'reassociate' or 'approximate', got \"fast\""),
        ({"memory_bytes": 0}, "Input should be greater than or equal to 1, got 0"),
        ({"memory_bytes": "8GiB"}, 'Input should be a valid integer, got "8GiB"'),
        ({"graph": wire() | {"outputs": ["y"]}}, "expected an object, got the string 'y'"),
        ({"shapes": "x"}, 'Input should be an object, got "x"'),
        ({"shapes": {"inputs": {"x": None}}}, "Input should be an object, got null"),
    ],
)
def test_what_was_expected_and_what_came(closed: Running, members: dict[str, Any], detail: str) -> None:
    answer = closed.client.post(URL, json={"graph": wire(), **members}, headers=HEADERS)
    assert (answer.status_code, answer.json()["detail"]) == (422, detail)
