"""The plan runtime on a stand-in for CuPy: what is launched, in which order, with what; guards; graphs; memory."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fuseplan_client import BundleError, CudaPlan, GuardError, LibraryError, load
from fuseplan_client.cuda import launches, library, runtime
from fuseplan_client.cuda import tensor_maps as maps
from fuseplan_client.cuda.launches import DeviceError, check_arch
from fuseplan_client.plan import PlanError

from tests.support.fake_cublaslt import FakeBindings
from tests.support.fake_cupy import DEFAULT_STREAM, FakeArray, FakeCupy, Kernel

FIRST, SECOND = b"cubin one", b"cubin two"
A, B, OUT = 1 << 20, 2 << 20, 3 << 20
SPEC = {"shape": [4, 8], "dtype": "f32", "strides": [8, 1], "alignment_bytes": 16}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def ref(text: str) -> dict[str, Any]:
    return {"place": text[:-1], "index": int(text[-1])}


def step(binary: bytes, entry: str, reads: Sequence[str], writes: Sequence[str], **more: Any) -> dict[str, Any]:
    return {
        "family": "x", "binary": sha(binary), "entry": entry,
        "reads": [ref(r) for r in reads], "writes": [ref(r) for r in writes],
        "grid": [3, 2, 1], "block": [32, 4, 1], "shared_bytes": 0, **more,
    }  # fmt: skip


def body(**changes: Any) -> dict[str, Any]:
    """in0, in1 -> tmp0 -> out0, by two kernels."""
    return {
        "wire_version": 1,
        "device": {"target": "cuda", "arch": "sm_90a"},
        "inputs": [SPEC, SPEC],
        "outputs": [SPEC],
        "buffers": [{"bytes": 1000}, {"bytes": 300}],
        "steps": [
            step(FIRST, "k_first", ["in0", "in1"], ["tmp0"], shared_bytes=100_000),
            step(SECOND, "k_second", ["tmp0", "in0"], ["out0"], scratch=ref("tmp1")),
        ],
        **changes,
    }


def bundled(folder: Path, plan: dict[str, Any], binaries: Sequence[bytes] = (FIRST, SECOND)) -> Path:
    (folder / "binaries").mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps(plan))
    for data in binaries:
        (folder / "binaries" / sha(data)).write_bytes(data)
    return folder


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> FakeCupy:
    fake = FakeCupy(arity={"k_first": 3, "k_second": 4})
    monkeypatch.setattr(launches, "cupy", lambda: fake)
    monkeypatch.setattr(runtime, "cupy", lambda: fake)
    return fake


def tensors(*addresses: int) -> list[FakeArray]:
    return [FakeArray(a, (4, 8), "<f4") for a in addresses]


def loaded(folder: Path, plan: dict[str, Any] | None = None, **more: Any) -> CudaPlan:
    return load(bundled(folder / "bundle", plan or body()), **more)


def test_steps_in_order_with_their_arguments(cupy: FakeCupy, tmp_path: Path) -> None:
    plan = loaded(tmp_path)
    assert cupy.loaded == [FIRST, SECOND]
    assert cupy.attributes == [("k_first", 8, 100_000)], "more than 48 KiB of shared memory has to be allowed"
    plan.run(tensors(A, B), tensors(OUT))
    ((memory, size),) = cupy.allocated
    assert size == 1024 + 512, "both temporaries from one allocation, each from a multiple of 256 on"
    assert cupy.log == [
        Kernel("k_first", (3, 2, 1), (32, 4, 1), 100_000, DEFAULT_STREAM, (A, B, memory)),
        Kernel("k_second", (3, 2, 1), (32, 4, 1), 0, DEFAULT_STREAM, (memory, A, OUT, memory + 1024)),
    ]


def test_the_second_call_is_captured_and_later_ones_relaunch(cupy: FakeCupy, tmp_path: Path) -> None:
    plan = loaded(tmp_path)
    for _ in range(4):
        plan.run(tensors(A, B), tensors(OUT))
    assert len(cupy.allocated) == 1
    assert [entry[0] if isinstance(entry, tuple) else entry.entry for entry in cupy.log] == [
        "k_first", "k_second", "graph", "graph", "graph",
    ]  # fmt: skip
    name, stream, inside = cupy.log[-1]
    assert (name, stream) == ("graph", DEFAULT_STREAM)
    assert [k.entry for k in inside] == ["k_first", "k_second"]
    assert [k.args for k in inside] == [k.args for k in cupy.log[:2]]
    assert inside[0].stream not in (0, DEFAULT_STREAM), "captured on a stream of its own"
    assert plan.graphs == 1


def test_other_pointers_are_another_graph_and_the_oldest_goes(cupy: FakeCupy, tmp_path: Path) -> None:
    plan = loaded(tmp_path, most_graphs=2)
    outs = [OUT, OUT + 4096, OUT + 8192]
    for out in outs:
        plan.run(tensors(A, B), tensors(out))
        plan.run(tensors(A, B), tensors(out))
    assert plan.graphs == 2
    before = len(cupy.log)
    plan.run(tensors(A, B), tensors(outs[2]))
    assert cupy.log[before][0] == "graph"
    assert cupy.log[before][2][1].args[2] == outs[2]
    plan.run(tensors(A, B), tensors(outs[0]))
    assert isinstance(cupy.log[before + 1], Kernel), "its graph is gone: step by step, as at first"


@pytest.mark.parametrize("version", [13, 14])
def test_streams_of_the_caller(version: int, cupy: FakeCupy, tmp_path: Path) -> None:
    class Torch:
        cuda_stream = 55

    if version == 13:
        cupy.become_13()
    plan = loaded(tmp_path)
    plan.run(tensors(A, B), tensors(OUT), stream=Torch())
    plan.run(tensors(A, B), tensors(OUT), stream=55)
    plan.run(tensors(A, B), tensors(OUT), stream=cupy.streams[DEFAULT_STREAM])
    assert [k.stream for k in cupy.log[:2]] == [55, 55]
    assert cupy.log[2][:2] == ("graph", 55)
    assert [k.stream for k in cupy.log[3:]] == [DEFAULT_STREAM] * 2
    first, second = cupy.allocated
    assert first != second, "calls on two streams may overlap: each has temporaries of its own"


def test_launching_for_somebody_elses_graph(cupy: FakeCupy, tmp_path: Path) -> None:
    plan = loaded(tmp_path)
    for _ in range(3):
        plan.launch(tensors(A, B), tensors(OUT), stream=55)
    assert len(cupy.log) == 6
    assert plan.graphs == 0


def test_new_outputs(cupy: FakeCupy, tmp_path: Path) -> None:
    strided = {"shape": [4, 8], "dtype": "bf16", "strides": [1, 4], "alignment_bytes": 64}
    plan = loaded(tmp_path, body(outputs=[strided]))
    (out,) = plan(*tensors(A, B))
    interface = out.__cuda_array_interface__
    assert (interface["shape"], interface["strides"], interface["typestr"]) == ((4, 8), (2, 8), "<u2")
    assert cupy.log[-1].args[2] == interface["data"][0]


def test_outputs_that_are_other_tensors(cupy: FakeCupy, tmp_path: Path) -> None:
    plan = loaded(tmp_path, body(outputs=[SPEC, SPEC, SPEC], aliases=[[1, ref("in1")], [2, ref("out0")]]))
    given = tensors(A, B)
    out, same, again = plan(*given)
    assert same is given[1]
    assert again is out
    plan.run(given, [*tensors(OUT), None, None])


GUARDS: list[tuple[str, list[FakeArray], list[FakeArray]]] = [
    ("expected 2 inputs, got 1", tensors(A), tensors(OUT)),
    ("expected 1 outputs, got 2", tensors(A, B), tensors(OUT, OUT)),
    ("in1: expected f32[4, 8], got f32[4, 9]", [*tensors(A), FakeArray(B, (4, 9), "<f4")], tensors(OUT)),
    ("in1: expected f32[4, 8], got f64[4, 8]", [*tensors(A), FakeArray(B, (4, 8), "<f8")], tensors(OUT)),
    (
        "in0: expected strides [8, 1], got [1, 4]",
        [FakeArray(A, (4, 8), "<f4", (1, 4)), *tensors(B)], tensors(OUT),
    ),
    ("in1: expected alignment to 16 bytes, got address 0x200004", tensors(A, B + 4), tensors(OUT)),
    ("in0: expected memory, got a null pointer", tensors(0, B), tensors(OUT)),
    ("out0 overlaps in0", tensors(A, B), tensors(A)),
    ("out0 overlaps in1", tensors(A, B), tensors(B - 64)),
]  # fmt: skip


@pytest.mark.parametrize(("message", "inputs", "outputs"), GUARDS, ids=[g[0] for g in GUARDS])
def test_guards(
    message: str, inputs: list[FakeArray], outputs: list[FakeArray], cupy: FakeCupy, tmp_path: Path
) -> None:
    plan = loaded(tmp_path)
    plan.run(tensors(A, B), tensors(OUT))  # a call that was right before changes nothing
    before = len(cupy.log)
    with pytest.raises(GuardError) as error:
        plan.run(inputs, outputs)
    assert message in str(error.value)
    assert len(cupy.log) == before, "nothing is launched"


def test_axes_of_one_element_have_any_stride_and_inputs_may_overlap(cupy: FakeCupy, tmp_path: Path) -> None:
    row = {"shape": [1, 8], "dtype": "f32", "strides": [8, 1], "alignment_bytes": 16}
    plan = loaded(tmp_path, body(inputs=[row, SPEC]))
    plan.run([FakeArray(A, (1, 8), "<f4", (77, 1)), *tensors(A)], tensors(OUT))
    assert len(cupy.log) == 2


def test_what_is_no_tensor(cupy: FakeCupy, tmp_path: Path) -> None:
    plan = loaded(tmp_path)
    with pytest.raises(TypeError, match="expected a tensor with __cuda_array_interface__ or DLPack, got int"):
        plan.run([1, 2], tensors(OUT))


def test_tensor_maps_follow_the_arguments(cupy: FakeCupy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[tuple[int, ...]] = []

    def encode(place: Any, dtype: Any, rank: Any, address: Any, sizes: Any, strides: Any, box: Any, *rest: Any) -> int:
        assert place.value % 64 == 0
        (maps.ctypes.c_uint8 * 128).from_address(place.value)[:] = bytes([0xAB] * 128)
        encoded.append((dtype.value, rank.value, address.value, *sizes, *strides, *box, *(r.value for r in rest[1:])))
        return 0

    driver = type("Driver", (), {"cuTensorMapEncodeTiled": staticmethod(encode)})
    monkeypatch.setattr(maps, "driver", lambda: driver)
    described = {
        "argument": 1, "offset_bytes": 32, "dtype": "f16", "element_bytes": 2, "sizes": [64, 128],
        "strides_bytes": [256], "box": [64, 32], "swizzle": 128,
    }  # fmt: skip
    cupy.arity["k_first maps"] = 1
    plan = body()
    plan["steps"][0]["tensor_maps"] = [described]
    loaded(tmp_path, plan).run(tensors(A, B), tensors(OUT))
    assert cupy.log[0].maps == (bytes([0xAB] * 128),)
    assert encoded == [(6, 2, B + 32, 64, 128, 256, 64, 32, 0, 3, 3, 0)]


def test_library_steps(cupy: FakeCupy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = {"offset": 0, "dtype": "f32", "turned": False, "batch_stride": 0, "alignment_bytes": 16}
    call = json.dumps(
        {
            "library": "cublaslt", "m": 4, "n": 8, "k": 8, "batch": 1, "compute": "f32", "alpha": 1.0, "beta": 0.0,
            "a": {**matrix, "tensor": 0, "leading": 8}, "b": {**matrix, "tensor": 1, "leading": 8},
            "c": None, "d": {**matrix, "tensor": 2, "leading": 8}, "bias": None, "loops": [], "algorithm": 2,
            "workspace_bytes": 64,
        }
    ).encode()  # fmt: skip
    steps = [step(call, "call_1", ["in0", "in1"], ["out0"], libraries=["cublaslt"], scratch=ref("tmp0"))]
    folder = bundled(tmp_path / "bundle", body(steps=steps), (call,))
    monkeypatch.setattr(library.importlib, "import_module", missing)
    library.bindings.cache_clear()
    with pytest.raises(LibraryError, match="nvmath-python is not installed"):
        load(folder)
    made: list[tuple[int, ...]] = []
    fake = FakeBindings()
    monkeypatch.setattr(fake, "matmul", lambda *args: made.append(args))
    monkeypatch.setattr(library, "bindings", lambda: fake)
    library._handle.cache_clear()
    load(folder).run(tensors(A, B), tensors(OUT), stream=55)
    library._handle.cache_clear()
    ((_, _, _, first, _, second, _, _, third, _, result, _, _, workspace, size, stream),) = made
    assert (first, second, third, result) == (B, A, OUT, OUT), "columns: the operands change places"
    assert (workspace, size, stream) == (cupy.allocated[0][0], 64, 55)


def missing(name: str) -> None:
    raise ImportError(name)


def test_without_cupy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ImportError says what to install, not only which module is missing."""
    folder = bundled(tmp_path / "bundle", body())
    monkeypatch.setattr(launches.importlib, "import_module", missing)
    launches.cupy.cache_clear()
    with pytest.raises(ImportError, match=r"pip install 'fuseplan-client\[cuda13\]'"):
        load(folder)
    launches.cupy.cache_clear()


def test_bundles_that_are_none(cupy: FakeCupy, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"plan\.json is missing"):
        load(tmp_path)
    folder = bundled(tmp_path / "short", body(), (FIRST,))
    with pytest.raises(BundleError, match="is missing"):
        load(folder)
    (folder / "binaries" / sha(SECOND)).write_bytes(b"other")
    with pytest.raises(BundleError, match="does not hash to its name"):
        load(folder)


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("expected a plan of wire version 1, got 2", {"wire_version": 2}),
        ("of target cuda or cpu, got 'emulator'", {"device": {"target": "emulator", "arch": "x"}}),
        ("no step writes out1", {"outputs": [SPEC, SPEC]}),
        ("a step uses tmp1, of 1 there are", {"buffers": [{"bytes": 1}]}),
        ("expected one of f64", {"inputs": [SPEC, {**SPEC, "dtype": "f4"}]}),
        ("the plan lacks 'entry'", {"steps": [{"binary": "", "reads": [], "writes": []}]}),
    ],
)
def test_plans_that_cannot_run(message: str, changes: dict[str, Any], cupy: FakeCupy, tmp_path: Path) -> None:
    with pytest.raises(PlanError) as error:
        loaded(tmp_path, body(**changes))
    assert message in str(error.value)


def test_architectures(cupy: FakeCupy, tmp_path: Path) -> None:
    check_arch("sm_90a", "90")
    check_arch("sm_80", "86")
    for arch, there in (("sm_90a", "100"), ("sm_89", "86"), ("sm_80", "90"), ("sm_100a", "103")):
        with pytest.raises(DeviceError, match=f"the plan is for {arch}; this device is sm_{there}"):
            check_arch(arch, there)
    cupy.capability = "80"
    with pytest.raises(DeviceError):
        loaded(tmp_path)


def test_a_capture_that_fails_shows_its_own_error(cupy: FakeCupy, tmp_path: Path) -> None:
    plan = loaded(tmp_path)
    plan.run(tensors(A, B), tensors(OUT))
    launch = cupy.cuda.driver.launchKernel

    def broken(*args: int) -> None:
        raise RuntimeError("out of resources")

    cupy.cuda.driver.launchKernel = broken
    with pytest.raises(RuntimeError, match="out of resources"):
        plan.run(tensors(A, B), tensors(OUT))
    cupy.cuda.driver.launchKernel = launch
    plan.run(tensors(A, B), tensors(OUT))
    assert cupy.log[-1][0] == "graph"
    assert [k.entry for k in cupy.log[-1][2]] == ["k_first", "k_second"]
