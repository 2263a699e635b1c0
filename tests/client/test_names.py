"""Calls by name: of tensors that the folder names, whatever the names, and what is said where they do not fit."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuseplan_client import BundleError, CudaPlan, GuardError, InputsError, Names, Outputs, load, read_bundle
from fuseplan_client.fill import CARRIERS, random_values, read_values
from fuseplan_client.plan import Tensor

from tests.client.test_prologue import folding
from tests.client.test_prologue import queued as happened
from tests.client.test_runtime import OUT, SPEC, A, B, body, bundled, cupy, ref, tensors  # noqa: F401
from tests.support.fake_cupy import FakeArray, FakeCupy

NAMES = ("q", "stream")


def about(
    folder: Path, inputs: tuple[str, ...], outputs: tuple[str, ...], changes: dict[str, Any] | None = None
) -> Path:
    """bundle.json for the plan of a folder."""
    key = hashlib.sha256((folder / "plan.json").read_bytes()).hexdigest()
    content = {
        "plan_key": key, "inputs": [{"name": n} for n in inputs],
        "outputs": [{"name": n} for n in outputs], "verified": "It ran.",
    } | (changes or {})  # fmt: skip
    (folder / "bundle.json").write_text(json.dumps(content))
    return folder


def loaded(folder: Path, inputs: tuple[str, ...] = ("q", "k"), **changes: Any) -> CudaPlan:
    return load(about(bundled(folder / "bundle", body(**changes)), inputs, ("y",)))


def test_calls_in_every_way_launch_the_same(cupy: FakeCupy, tmp_path: Path) -> None:  # noqa: F811
    plan, (q, k) = loaded(tmp_path), tensors(A, B)
    ways = [
        lambda: plan(q, k), lambda: plan(q=q, k=k), lambda: plan(k=k, q=q), lambda: plan(q, k=k),
        lambda: plan({"k": k, "q": q}), lambda: plan({"k": k}, q=q),
    ]  # fmt: skip
    for way in ways:
        before = len(cupy.log)
        way()
        assert cupy.log[before].args[:2] == (A, B)
    before = len(cupy.log)
    plan.run({"k": k, "q": q}, {"y": tensors(OUT)[0]})
    plan.launch({"k": k, "q": q}, {"y": tensors(OUT)[0]})
    assert [kernel.args[:2] for kernel in cupy.log[before::2]] == [(A, B)] * 2
    assert cupy.log[-1].args[2] == OUT


def test_outputs_by_name(cupy: FakeCupy, tmp_path: Path) -> None:  # noqa: F811
    outputs = loaded(tmp_path)(*tensors(A, B))
    (only,) = outputs
    assert outputs["y"] is outputs[0] is only
    assert list(outputs.items()) == [("y", only)]
    assert isinstance(outputs, tuple)
    with pytest.raises(KeyError, match="expected an output, one of 'y', got 'z'"):
        outputs["z"]
    assert Outputs((1, 2, 3), ("a", "b", "c"))[1:] == (2, 3)


FAULTS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("expected inputs 'q', 'k', got one named 'w'", (), {"q": 1, "k": 2, "w": 3}),
    ("expected inputs 'q', 'k', got none named 'k'", (), {"q": 1}),
    ("expected 2 inputs, each once, got 'q' twice", (1,), {"q": 1, "k": 2}),
    ("expected 2 inputs, each once, got 'k' twice", (1, 2, 3), {"k": 2}),
    ("expected inputs 'k', got one named 'q'", (1,), {"q": 1}),
    ("expected inputs 'k', got one named 'w'", (1,), {"w": 1}),
    ("expected 2 inputs, got 1", (*tensors(A),), {}),
    ("in1 'k': expected f32[4, 8], got f32[4, 9]", (), {"q": tensors(A)[0], "k": FakeArray(B, (4, 9), "<f4")}),
]


@pytest.mark.parametrize(("message", "given", "named"), FAULTS, ids=[f[0] for f in FAULTS])
def test_names_that_do_not_fit(
    message: str,
    given: tuple[Any, ...],
    named: dict[str, Any],
    cupy: FakeCupy,  # noqa: F811
    tmp_path: Path,
) -> None:
    with pytest.raises(GuardError) as error:
        loaded(tmp_path)(*given, **named)
    assert message in str(error.value)
    assert not cupy.log


def test_a_tensor_called_as_an_argument_goes_in_a_dict(cupy: FakeCupy, tmp_path: Path) -> None:  # noqa: F811
    plan, (q, stream) = loaded(tmp_path, NAMES), tensors(A, B)
    plan({"q": q, "stream": stream}, stream=55)
    assert (cupy.log[0].args[:2], cupy.log[0].stream) == ((A, B), 55)
    with pytest.raises(GuardError, match="give it in a dict, since a call has a stream of its own"):
        plan(q=q, stream=55)


def test_outputs_that_are_other_tensors_need_no_memory(cupy: FakeCupy, tmp_path: Path) -> None:  # noqa: F811
    folder = bundled(tmp_path / "bundle", body(outputs=[SPEC, SPEC], aliases=[[1, ref("in1")]]))
    plan, (q, k) = load(about(folder, ("q", "k"), ("y", "same"))), tensors(A, B)
    assert plan(q=q, k=k)["same"] is k
    plan.run({"q": q, "k": k}, {"y": tensors(OUT)[0]})
    with pytest.raises(GuardError, match="expected outputs 'y', 'same', got none named 'y'"):
        plan.run({"q": q, "k": k}, {"same": None})


def test_versions_by_name(cupy: FakeCupy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr("fuseplan_client.cuda.prologue.cupy", lambda: cupy)
    cupy.arity = {"k_fold": 2, "k_second": 3, "k_third": 2}
    plan, given = load(about(bundled(tmp_path / "b", folding()), ("x", "w"), ("y",))), tensors(A, B)
    plan(*given, versions={"w": 1})
    plan(*given, versions={1: 1})
    assert plan.prologue_runs == 1
    plan(*given, versions={"w": 2})
    assert plan.prologue_runs == 2
    assert "k_fold" in happened(cupy)
    with pytest.raises(GuardError, match="expected versions of 'x', 'w', got one of 'v'"):
        plan(*given, versions={"v": 1})


def test_folders_without_names_have_plain_ones(cupy: FakeCupy, tmp_path: Path) -> None:  # noqa: F811
    plan, (q, k) = load(bundled(tmp_path / "bundle", body())), tensors(A, B)
    assert plan.names == Names(("in0", "in1"), ("out0",))
    assert plan(in1=k, in0=q)["out0"] is not None
    assert plan.verified == ""


@pytest.mark.parametrize(
    ("message", "inputs", "changes"),
    [
        ("is about plan 0, expected", ("q", "k"), {"plan_key": "0"}),
        ("expected 2 inputs with names of their own, got ['q']", ("q",), {}),
        ("expected 2 inputs with names of their own, got ['q', 'q']", ("q", "q"), {}),
        ("says nothing of plan_key, inputs and outputs", ("q", "k"), {"outputs": [{}]}),
        ("says nothing of plan_key, inputs and outputs", ("q", "k"), {"outputs": 3}),
    ],
)
def test_names_of_another_plan(message: str, inputs: tuple[str, ...], changes: dict[str, Any], tmp_path: Path) -> None:
    folder = about(bundled(tmp_path / "bundle", body()), inputs, ("y",), changes)
    with pytest.raises(BundleError) as error:
        read_bundle(folder)
    assert message in str(error.value)
    (folder / "bundle.json").write_text("{")
    with pytest.raises(BundleError, match=r"bundle\.json is no JSON"):
        read_bundle(folder)


@pytest.mark.parametrize("dtype", CARRIERS)
def test_random_values_are_finite_and_repeat(dtype: str) -> None:
    spec = Tensor((16, 32), dtype, (1, 16), 16)
    values, again = (random_values(spec, np.random.default_rng(3)) for _ in range(2))
    assert (values.shape, values.dtype) == ((512,), np.dtype(CARRIERS[dtype]))
    assert values.tobytes() == again.tobytes()
    assert len(np.unique(values)) > 1
    ml_dtypes = pytest.importorskip("ml_dtypes")
    names = {"bf16": "bfloat16", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}
    read = values.view(getattr(ml_dtypes, names[dtype])) if dtype in names else values
    found = read.astype("f8")
    assert np.isfinite(found).all()
    if dtype.startswith("f8"):
        assert (np.abs(found).min(), np.abs(found).max() < 4) == (0.25, True)
    elif dtype in ("f64", "f32", "f16", "bf16"):
        assert abs(float(found.mean())) < 0.2
        assert 0.8 < float(found.std()) < 1.2
    else:
        assert set(found) == {0.0, 1.0}, "indices of any axis"


def test_no_values_of_no_elements() -> None:
    assert random_values(Tensor((0, 3), "bf16", (3, 1), 16), np.random.default_rng(0)).size == 0


@pytest.mark.parametrize(
    ("message", "data"),
    [
        ("no safetensors file", b""),
        ("no safetensors file", b"\xff" * 40),
        ("no safetensors file", (3).to_bytes(8, "little") + b"[1}"),
        ("no safetensors file", (3).to_bytes(8, "little") + b"[1]"),
        ("expected a tensor named 'q', found none", (2).to_bytes(8, "little") + b"{}"),
    ],
)
def test_files_that_hold_no_inputs(message: str, data: bytes, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(InputsError, match=message):
        read_values(tmp_path / "f", ("q",), (Tensor((2,), "f32", (1,), 16),))


@pytest.mark.parametrize(
    ("message", "entry"),
    [
        (r"expected 'q' to be F32\[2\], found F32\[3\]", {"shape": [3]}),
        (r"expected 'q' to be F32\[2\], found F16\[2\]", {"dtype": "F16"}),
        ("other bytes than its shape says", {"data_offsets": [0, 4]}),
        ("lies outside of the file", {"data_offsets": [8, 16]}),
        ("says nothing of its dtype, shape and place", {"shape": 3}),
        ("says nothing of its dtype, shape and place", {"data_offsets": None}),
    ],
)
def test_tensors_of_a_file_that_do_not_fit(message: str, entry: dict[str, Any], tmp_path: Path) -> None:
    header = json.dumps({"q": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **entry}}).encode()
    (tmp_path / "f").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    with pytest.raises(InputsError, match=message):
        read_values(tmp_path / "f", ("q",), (Tensor((2,), "f32", (1,), 16),))
