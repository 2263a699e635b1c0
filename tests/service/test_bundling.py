"""Bundles: what their pages say of the plan, whatever its tensors are called, and that their program runs it."""

import json
import runpy
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuseplan_client import BundleError, load, read_bundle
from fuseplan_client.cuda import launches, prologue, runtime
from fuseplan_client.fill import FILE_TYPES
from fuseplan_client.signatures import SignatureError
from safetensors import TensorSpec as FileTensor
from safetensors import serialize_file

from codegen.hardware.gpus import specified
from fusion_ir.core.named import NamedGraph
from fusion_ir.records import Buffer, Device, Plan, Ref, Search, Step, TensorSpec, Written
from fusion_ir.text.printing import parse_graph
from service.bundling.folder import write_bundle
from service.bundling.subject import Subject, verified
from service.signing.key import open_key
from tests.support.devices import CUDA_DEVICE
from tests.support.fake_cupy import FakeCupy
from tests.support.stored_plans import sha

Golden = Callable[[str, str], None]

H200 = specified("h200", "NVRTC 13.0")
REAL = CUDA_DEVICE.model_copy(update={"name": "NVIDIA H200", "driver": "580.65", "toolchain": "NVRTC 13.0"})
KERNEL, CALL = b"cubin", b'{"library": "cublaslt"}'
SOURCE = "__global__ void k_first() {}\n"
# Not identifiers, words of Python, of the call and of Markdown, one name on either side, and what no terminal shows.
INPUTS = ("layer.0/weight", "stream", "x|y `z`", "für\u200b\n")
OUTPUTS = ("stream", "none", "the weight", "class")
GRAPH = NamedGraph(
    parse_graph(
        'fuseplan.graph 1\nin0 w: bf16[4, 8] align 16 constant "w@1"\nin1 x: f32[4, 8] align 16\n'
        "%0 = in1: f32[4, 8]\n%1 = exp(%0): f32[4, 8]\nout0 y: %1\n"
    ).graph,
    ("w", "x"),
    ("y",),
    (),
    ("", "act"),
)


def tensor(dtype: str, *shape: int, strides: tuple[int, ...] = (), **more: Any) -> TensorSpec:
    dense = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
    return TensorSpec(shape=shape, dtype=dtype, strides=strides or dense, alignment_bytes=16, **more)


def refs(text: str) -> tuple[Ref, ...]:
    return tuple(Ref(place=word[:-1], index=int(word[-1])) for word in text.split())  # type: ignore[arg-type]


def step(family: str, binary: bytes, reads: str, writes: str, us: Mapping[str, float | None], **more: Any) -> Step:
    return Step(
        family=family, schedule=f"{family}{{vec=8}}", binary=sha(binary), entry=f"k_{family}", reads=refs(reads),
        writes=refs(writes), bound_us=1.0, bytes=64, operations=1.0, nodes=(1,), segment_key=sha("s"),
        **{"time_us": None, **us}, **more,
    )  # fmt: skip


def plan(device: Device, **changes: Any) -> Plan:
    """A prologue, a kernel, a call of a library; outputs: written, of no elements, an input and an output as they
    are."""
    us = {"time_us": 3.0} if device.origin == "detected" else {"predicted_us": 4.0}
    steps = (
        step("reduction", KERNEL, "in0", "tmp0", us, source=sha(SOURCE), prologue=True, written=(Written(nodes=(1,)),)),
        step("pointwise", KERNEL, "tmp0 in1 in2", "out0", us, source=sha(SOURCE)),
        step("cublaslt", CALL, "in3", "out1", us, source=sha("call"), libraries=("cublaslt",)),
    )
    content: dict[str, Any] = {
        "graph_key": sha("graph"), "numerics": "reassociate", "device": device,
        "inputs": (
            tensor("bf16", 4, 8, constant="w@1"), tensor("f8e4m3", 4, 8), tensor("f32", 4, 8, strides=(1, 4)),
            tensor("i64", 0, 3),
        ),
        "outputs": (tensor("bf16", 4, 8), tensor("f16", 0, 3), tensor("bf16", 4, 8), tensor("bf16", 4, 8)),
        "buffers": (Buffer(bytes=256, kept=True),), "steps": steps,
        "aliases": ((2, refs("in0")[0]), (3, refs("out0")[0])),
        "time_us": us.get("time_us"), "predicted_us": us.get("predicted_us"), "prologue_us": 2.0,
        "spread": 0.02 if "time_us" in us else None, "unfused_us": None, "lower_bound_us": 1.0, "search_gap": None,
        "copy_us": None, "max_rel_error": 1.5e-3 if "time_us" in us else None,
        "search": Search(seconds=1.0, candidates=3, measured=2, complete=True), "version": "0.1.0",
    }  # fmt: skip
    return Plan(**(content | changes))


def subject(made: Plan) -> Subject:
    binaries = {sha(data): data for data in (KERNEL, CALL) if any(s.binary == sha(data) for s in made.steps)}
    sources = {sha(text): text for text in (SOURCE, "call") if made.steps}
    state = "predicted" if made.time_us is None else "measured"
    body = made.model_dump_json().encode()
    return Subject(
        made.plan_key, body, made, state, 1.79e9, INPUTS[: len(made.inputs)], OUTPUTS[: len(made.outputs)], GRAPH,
        binaries, sources,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["measured", "predicted"])
def test_what_a_bundle_says(name: str, tmp_path: Path, golden: Golden) -> None:
    write_bundle(subject(plan(REAL if name == "measured" else H200)), tmp_path / "b", open_key(tmp_path / "key.pem"))
    for file in ("README.md", "bundle.json", "run.py") if name == "measured" else ("README.md",):
        golden(f"bundle.{name}.{file}", (tmp_path / "b" / file).read_text("utf-8"))
    files = sorted(str(p.relative_to(tmp_path / "b")) for p in (tmp_path / "b").rglob("*") if p.is_file())
    assert files == sorted(
        ["README.md", "bundle.json", "bundle.sig", "plan.json", "run.py", "graph.fuseplan.txt",
         "sources/00_reduction.cu", "sources/02_cublaslt.json", f"binaries/{sha(KERNEL)}", f"binaries/{sha(CALL)}"]
    )  # fmt: skip
    for data in (KERNEL, CALL):
        assert (tmp_path / "b" / "binaries" / sha(data)).read_bytes() == data
    assert (tmp_path / "b" / "sources" / "00_reduction.cu").read_text() == SOURCE


VERIFIED: dict[str, tuple[dict[str, Any], str]] = {
    "whole": ({}, "were the interpreter's, on random inputs; the largest relative error was 0.0015. It ran on NVIDIA"),
    "by steps": ({"judged_by_steps": True, "max_rel_error": None}, "The outputs as a whole say nothing"),
    "not whole": ({"spread": None}, "The plan was not run as a whole"),
    "never": ({"time_us": None, "predicted_us": 4.0}, "Nobody ran this plan."),
    "elsewhere": ({"device": H200}, "Nobody ran this plan."),
    "nothing": ({"steps": (), "buffers": (), "aliases": ((0, refs("in0")[0]),)}, "The plan has no kernels"),
}


@pytest.mark.parametrize("name", VERIFIED)
def test_what_was_verified(name: str) -> None:
    changes, words = VERIFIED[name]
    assert words in verified(plan(**({"device": REAL} | changes)), "2026-11-26 20:14 UTC")


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    fake = FakeCupy(arity={"k_reduction": 2, "k_pointwise": 4, "k_third": 2})
    for module in (launches, runtime, prologue):
        monkeypatch.setattr(module, "cupy", lambda: fake)
    return fake


def ran(folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, Any]:
    monkeypatch.setattr(sys, "argv", ["run.py", *arguments])
    return runpy.run_path(str(folder / "run.py"), run_name="__main__")


def runnable(device: Device, **changes: Any) -> Plan:
    """The plan without the library."""
    us = {"time_us": 3.0} if device.origin == "detected" else {"predicted_us": 4.0}
    made = plan(device)
    last = step("third", KERNEL, "in3", "out1", us, source=sha(SOURCE))
    return made.model_copy(update={"steps": (*made.steps[:2], last), **changes})


def test_its_program_runs_the_plan(
    cupy: FakeCupy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On random inputs: every type, strides that are not dense, no elements, names of any kind."""
    write_bundle(subject(runnable(H200)), tmp_path / "b", open_key(tmp_path / "key.pem"))
    found = ran(tmp_path / "b", monkeypatch)
    printed = capsys.readouterr().out
    assert printed.startswith("Nobody ran this plan.")
    assert printed.endswith("'stream': bf16[4, 8]\n'none': f16[0, 3]\n'the weight': bf16[4, 8]\n'class': bf16[4, 8]\n")
    assert [k.entry for k in cupy.log if hasattr(k, "entry")] == ["k_reduction", "k_pointwise", "k_third"]
    outputs, inputs = found["outputs"], found["inputs"]
    assert outputs["the weight"] is inputs[0], "an output that is an input as it is"
    assert outputs["class"] is outputs["stream"] is outputs[0]
    assert [i.__cuda_array_interface__["strides"] for i in inputs] == [(16, 2), (8, 1), (4, 16), (24, 8)]
    assert {a.dtype.str: a.size for a in cupy.contents.values()} == {"<u2": 32, "|u1": 32, "<f4": 32}


def file_of(folder: Path, arrays: Mapping[str, tuple[str, np.ndarray]]) -> Path:
    path = folder / "inputs.safetensors"
    specs = {
        name: FileTensor(
            dtype={"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f32": "float32", "i64": "int64"}[dtype],
            shape=array.shape, data_ptr=array.ctypes.data, data_len=array.nbytes,
        )
        for name, (dtype, array) in arrays.items()
    }  # fmt: skip
    serialize_file(specs, path)
    return path


def test_its_program_reads_tensors_by_name(
    cupy: FakeCupy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_bundle(subject(runnable(REAL)), tmp_path / "b", open_key(tmp_path / "key.pem"))
    matrix = np.arange(32, dtype="f4").reshape(4, 8)
    arrays = {
        INPUTS[3]: ("i64", np.zeros((0, 3), "i8")),
        INPUTS[2]: ("f32", matrix),
        INPUTS[1]: ("f8e4m3", np.arange(32, dtype="u1").reshape(4, 8)),
        INPUTS[0]: ("bf16", np.arange(32, dtype="u2").reshape(4, 8)),
    }
    ran(tmp_path / "b", monkeypatch, str(file_of(tmp_path, arrays)))
    assert "were the interpreter's" in capsys.readouterr().out
    bf16, eight, f32 = cupy.contents.values()
    assert (bf16.tolist(), eight.tolist()) == (list(range(32)), list(range(32)))
    assert f32.tolist() == matrix.T.ravel().tolist(), "its elements lie column after column"
    del arrays[INPUTS[1]]
    with pytest.raises(ValueError, match="expected a tensor named 'stream', found"):
        ran(tmp_path / "b", monkeypatch, str(file_of(tmp_path, arrays)))


def test_the_program_is_short_and_imports_the_client_alone(tmp_path: Path) -> None:
    write_bundle(subject(plan(H200)), tmp_path / "b", open_key(tmp_path / "key.pem"))
    text = (tmp_path / "b" / "run.py").read_text()
    compile(text, "run.py", "exec")
    lines = [line for line in text.splitlines() if line]
    assert len(lines) <= 12
    assert [line.split()[1] for line in lines if line.startswith(("import", "from"))] == [
        "sys", "pathlib", "fuseplan_client",
    ]  # fmt: skip
    assert json.loads((tmp_path / "b" / "bundle.json").read_text())["inputs"][3]["name"] == INPUTS[3]
    assert FILE_TYPES.keys() == runtime.CARRIERS.keys()


def key_of(folder: Path) -> str:
    """The public key that bundles in this test's folder are signed with."""
    return open_key(folder / "key.pem").public


TAMPERED: dict[str, tuple[Callable[[Path], None], str]] = {
    "plan": (lambda b: changed(b / "plan.json", b'"wire_version":1', b'"wire_version":1 '), "it was changed"),
    "names": (lambda b: changed(b / "bundle.json", b'"stream"', b'"steam"'), "it was changed"),
    "no signature": (lambda b: (b / "bundle.sig").unlink(), "is not signed"),
    "an empty signature": (lambda b: (b / "bundle.sig").write_bytes(b""), "is not signed"),
    "a signature cut off": (lambda b: (b / "bundle.sig").write_bytes((b / "bundle.sig").read_bytes()[:60]), "cut off"),
    "bytes for a signature": (lambda b: (b / "bundle.sig").write_bytes(bytes(range(128, 256))), "version"),
}


def changed(file: Path, old: bytes, new: bytes) -> None:
    content = file.read_bytes()
    assert old in content
    file.write_bytes(content.replace(old, new, 1))


@pytest.mark.parametrize("how", TAMPERED)
def test_a_bundle_that_was_tampered_with_is_refused_where_a_key_is_given(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, (tamper, why) = tmp_path / "b", TAMPERED[how]
    write_bundle(subject(plan(REAL)), folder, open_key(tmp_path / "key.pem"))
    whole = read_bundle(folder, server_keys=[key_of(tmp_path)])
    assert whole.key == read_bundle(folder).key
    tamper(folder)
    with pytest.raises(SignatureError, match=why):
        read_bundle(folder, server_keys=[key_of(tmp_path)])
    monkeypatch.setenv("FUSEPLAN_SERVER_KEY", key_of(tmp_path))
    with pytest.raises(SignatureError, match=why):
        load(folder)
    with pytest.raises(SignatureError, match=why):
        read_bundle(folder)


def test_a_bundle_by_another_key_without_its_names_or_with_another_binary_is_refused(tmp_path: Path) -> None:
    folder, other = tmp_path / "b", open_key(tmp_path / "other.pem").public
    write_bundle(subject(plan(REAL)), folder, open_key(tmp_path / "key.pem"))
    with pytest.raises(SignatureError, match="these are trusted"):
        read_bundle(folder, server_keys=[other])
    assert read_bundle(folder, server_keys=[other, key_of(tmp_path)]).names.inputs == INPUTS
    changed(folder / "binaries" / sha(KERNEL), b"cubin", b"Cubin")
    with pytest.raises(BundleError, match="does not hash to its name"):
        read_bundle(folder, server_keys=[key_of(tmp_path)])
    (folder / "bundle.json").unlink()
    with pytest.raises(BundleError, match=r"bundle\.json is missing"):
        read_bundle(folder, server_keys=[key_of(tmp_path)])
