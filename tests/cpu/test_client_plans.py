"""Plans for CPUs in other programs: threads of every kind, forks, small stacks, constants, what is refused."""

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuseplan_client import BundleError, CpuPlan, GuardError, MachineError, constants, load
from fuseplan_client.cpu import executor as executors
from fuseplan_client.cpu.arena import Arena
from fuseplan_client.cpu.machine import architecture, cpu_flags
from fuseplan_client.cpu.shared_objects import ObjectError, load_object

from codegen.kernel import Kernel, Launch
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.builder import Builder
from codegen.toolchain.compiler import Binary
from codegen.toolchain.cpu import find_compiler
from service.planning.executor import executor
from tests.support.kernels import bare_headers

N = 4096
# Each adds or multiplies the elements that are its task's. `deep` does so on 3 MiB of its thread's stack.
SOURCES = {
    name: 'extern "C" void '
    + name
    + "(void* const* args, long task, long tasks) {"
    + "const float *x = (const float*)args[0], *y = (const float*)args[1]; float* z = (float*)args[2];"
    + deep
    + f"for (long i = task; i < {N}; i += tasks) z[i] = x[i] {op} y[i]; }}"
    for name, op, deep in (
        ("add", "+", ""),
        ("mul", "*", ""),
        ("deep", "+", "volatile char big[3 << 20]; for (long i = 0; i < (3 << 20); i += 4096) big[i] = (char)i;"),
    )
}
SPEC = {"shape": [N], "dtype": "f32", "strides": [1], "alignment_bytes": 16}
WEIGHT = {**SPEC, "constant": "w@1"}
Made = tuple[Mapping[str, bytes], tuple[str, bytes]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Binaries of the kernels by entry, and the executor."""
    cache = ObjectCache(tmp_path_factory.mktemp("client") / "cache")
    compiler = find_compiler(include=bare_headers(cache.folder / "include"), cache=cache)
    builder = Builder(compiler, cache, Limits(), 1)
    kernels = [Kernel(name, source, "cpu", "t", "t", Launch()) for name, source in SOURCES.items()]
    found: dict[str, bytes] = {}
    for kernel, binary in zip(kernels, builder.compile(kernels), strict=True):
        assert isinstance(binary, Binary), binary
        path = cache.path(binary.sha256)
        assert path is not None
        found[kernel.entry] = path.read_bytes()
    builder.close()
    return found, executor(cache)


def refs(text: str) -> list[dict[str, Any]]:
    return [{"place": r[:-1], "index": int(r[-1])} for r in text.split()]


def bundled(folder: Path, made: Made, steps: Sequence[tuple[str, str, str, int]], **changes: Any) -> Path:
    """A bundle of steps: entry, reads, writes, tasks. Those that write tmp0 are of the prologue where it is kept."""
    binaries, (runs, code) = made
    body = {
        "wire_version": 1,
        "device": {"target": "cpu", "arch": architecture(), "features": [], "units": 2},
        "inputs": [SPEC, SPEC],
        "outputs": [SPEC],
        "buffers": [{"bytes": 4 * N}, {"bytes": 4 * N}],
        "steps": [],
        **changes,
    }
    for entry, reads, writes, tasks in steps:
        step = {"binary": sha(binaries[entry]), "entry": entry, "reads": refs(reads), "writes": refs(writes)}
        once = writes == "tmp0" and bool(body["buffers"][0].get("kept"))
        body["steps"].append({**step, "tasks": tasks, "prologue": once})
    (folder / "binaries").mkdir(parents=True)
    for data in (*binaries.values(), code):
        (folder / "binaries" / sha(data)).write_bytes(data)
    text = json.dumps(body)
    names = {w: [{"name": f"{w[0]}{i}"} for i in range(len(body[w]))] for w in ("inputs", "outputs")}
    (folder / "plan.json").write_text(text)
    (folder / "bundle.json").write_text(json.dumps({"plan_key": sha(text.encode()), "executor": runs, **names}))
    return folder


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


STEPS = (("add", "in0 in1", "tmp0", 2), ("mul", "tmp0 in0", "tmp1", 7), ("add", "tmp1 tmp0", "out0", 1))


def expected(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (x + y) * x + (x + y)


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return tuple(generator.standard_normal(N, np.float32) for _ in range(2))  # type: ignore[return-value]


@pytest.mark.turn("plans in a client")
@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_steps_follow_each_other_on_any_number_of_threads(threads: int, made: Made, tmp_path: Path) -> None:
    plan = load(bundled(tmp_path / "b", made, STEPS), threads=threads)
    for seed in range(200):
        x, y = drawn(seed)
        (out,) = plan(x, y)
        assert np.array_equal(out, expected(x, y)), seed


def test_threads_that_call_at_once_each_get_their_own(made: Made, tmp_path: Path) -> None:
    """One of them has the pool, the others run alone meanwhile; temporaries are each thread's."""
    plans = [load(bundled(tmp_path / str(i), made, STEPS), threads=2) for i in range(2)]
    wrong: list[int] = []

    def work(first: int) -> None:
        for seed in range(first, first + 150):
            x, y = drawn(seed)
            (out,) = plans[seed % 2](x, y)
            if not np.array_equal(out, expected(x, y)):
                wrong.append(seed)

    workers = [threading.Thread(target=work, args=(1000 * i,)) for i in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def test_threads_with_small_stacks_leave_the_work_to_others(made: Made, tmp_path: Path) -> None:
    """A kernel may take 4 MiB of stack: a caller with less has none of its tasks."""
    plan = load(bundled(tmp_path / "b", made, [("deep", "in0 in1", "out0", 3)]), threads=2)
    x, y = drawn(0)
    found: list[np.ndarray] = []
    before = threading.stack_size(1 << 20)
    try:
        small = threading.Thread(target=lambda: found.extend(plan(x, y)))
        small.start()
    finally:
        threading.stack_size(before)
    small.join()
    assert np.array_equal(found[0], x + y)


FORKS = """
import os, sys, signal
import numpy as np
sys.path[:0] = {path!r}
{torch}
from fuseplan_client import load
plan = load({folder!r}, threads=2)
{openmp}
x, y = (np.arange({n}, dtype=np.float32) + i for i in range(2))
right = lambda: np.array_equal(plan(x, y)[0], (x + y) * x + (x + y))
assert right()
for generation in range(3):
    child = os.fork()
    if child:
        break
    signal.alarm(20)  # a child that hangs is killed
    assert right() and right()
if child:
    assert right()
    _, status = os.waitpid(child, 0)
    assert status == 0, status
print(generation)
"""


@pytest.mark.turn("plans in a client")
@pytest.mark.parametrize("way", ["pool", "openmp"])
def test_children_of_a_fork_run_plans(way: str, made: Made, tmp_path: Path) -> None:
    """They have none of their parent's threads; nor have their own children."""
    if way == "openmp":
        pytest.importorskip("torch")
    folder = bundled(tmp_path / "b", made, STEPS)
    openmp = "assert plan.executor.use_openmp(); import torch; torch.set_num_threads(2); torch.ones(1 << 20).exp()"
    script = FORKS.format(
        path=[p for p in sys.path if p],
        folder=str(folder),
        n=N,
        torch="import torch" if way == "openmp" else "",
        openmp=openmp if way == "openmp" else "",
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert (ended.returncode, ended.stdout.split()) == (0, ["2", "2", "1", "0"]), ended.stderr


OPENMP = """
import os, sys, threading
import numpy as np
sys.path[:0] = {path!r}
import torch
from fuseplan_client import load
plan = load({folder!r}, threads=3)
assert plan.executor.use_openmp()
torch.set_num_threads(3)
before = len(os.listdir("/proc/self/task"))
torch.ones(1 << 22).exp()
def work(seed):
    x, y = (torch.arange({n}, dtype=torch.float32) * seed + i for i in range(2))
    for _ in range(50):
        assert np.array_equal(plan(x, y)[0], ((x + y) * x + (x + y)).numpy())
work(1)
threads = len(os.listdir("/proc/self/task"))
work(2)
assert len(os.listdir("/proc/self/task")) == threads, "a plan started threads beside OpenMP's"
others = [threading.Thread(target=work, args=(s,)) for s in (3, 4)]
[t.start() for t in others]; [t.join() for t in others]
print("right", threads - before)
"""


@pytest.mark.turn("plans in a client")
def test_plans_share_the_threads_of_pytorch(made: Made, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    folder = bundled(tmp_path / "b", made, STEPS)
    script = OPENMP.format(path=[p for p in sys.path if p], folder=str(folder), n=N)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert (ended.returncode, ended.stdout.split()[:1]) == (0, ["right"]), ended.stderr


def test_what_constants_make_is_computed_once(made: Made, tmp_path: Path) -> None:
    steps = [("add", "in1 in1", "tmp0", 2), ("mul", "tmp0 in0", "out0", 2)]
    kept = [{"bytes": 4 * N, "kept": True}, {"bytes": 4 * N}]
    plan = load(bundled(tmp_path / "b", made, steps, inputs=[SPEC, WEIGHT], buffers=kept), threads=2)
    assert isinstance(plan, CpuPlan)
    (x, w), (other, _) = drawn(0), drawn(1)
    for _ in range(3):
        assert np.array_equal(plan(x, w)[0], 2 * w * x)
    assert plan.prologue_runs == 1
    assert np.array_equal(plan(x, other)[0], 2 * other * x)
    assert plan.prologue_runs == 2
    other *= 2
    plan.constants_changed()
    assert np.array_equal(plan(x, other)[0], 2 * other * x)
    other *= 2
    assert np.array_equal(plan(x, other, versions={"i1": 1})[0], 2 * other * x)
    assert plan.prologue_runs == 4
    with pytest.raises(GuardError, match="in0 is no constant"):
        plan(x, other, versions={"i0": 1})


def test_equal_layers_have_constants_of_their_own(made: Made, tmp_path: Path) -> None:
    """One plan, called with one layer's after the other's; what a layer that is gone had goes with it."""
    steps = [("add", "in1 in1", "tmp0", 2), ("mul", "tmp0 in0", "out0", 2)]
    kept = [{"bytes": 4 * N, "kept": True}, {"bytes": 4 * N}]
    plan = load(bundled(tmp_path / "b", made, steps, inputs=[SPEC, WEIGHT], buffers=kept), threads=2)
    assert isinstance(plan, CpuPlan)
    x, weights = drawn(0)[0], [drawn(i)[1] for i in range(4)]
    for version in range(3):
        for _ in range(3):
            for w in weights:
                assert np.array_equal(plan(x, w, versions={"i1": version})[0], 2 * w * x)
        assert plan.prologue_runs == 4 * (version + 1)
        for w in weights:
            w *= 2
    results = plan._program._results
    assert len(results._by_place) == 4
    del weights[1:], w
    weights.append(drawn(7)[1])
    assert np.array_equal(plan(x, weights[1])[0], 2 * weights[1] * x)
    assert len(results._by_place) == 2, "of the first, and of the new one"


def test_a_weight_that_is_put_elsewhere_and_back(made: Made, tmp_path: Path) -> None:
    """By `.data =`, which counts no write: memory where a weight lay may be another's by now, or its own with other
    values."""
    torch = pytest.importorskip("torch")
    steps = [("add", "in1 in1", "tmp0", 2), ("mul", "tmp0 in0", "out0", 2)]
    kept = [{"bytes": 4 * N, "kept": True}, {"bytes": 4 * N}]
    plan = load(bundled(tmp_path / "b", made, steps, inputs=[SPEC, WEIGHT], buffers=kept), threads=2)
    x, values = drawn(0)[0], drawn(1)[1]  # whose writes PyTorch does not count, as those of whom the memory is next
    here, there = torch.from_numpy(values), torch.from_numpy(drawn(2)[1])

    def is_right(w: Any) -> bool:
        return np.array_equal(plan(x, w)[0], 2 * w.detach().numpy() * x)

    weight = torch.nn.Parameter(here)
    assert is_right(weight)
    weight.data = there
    assert is_right(weight)
    values += 1.0
    weight.data = here
    assert is_right(weight), "its own memory, with other values"
    weight.data = there
    values += 1.0
    assert is_right(torch.nn.Parameter(here)), "another's"


def test_no_more_results_are_kept_than_said(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "MOST", 3)
    steps = [("add", "in1 in1", "tmp0", 2), ("mul", "tmp0 in0", "out0", 2)]
    kept = [{"bytes": 4 * N, "kept": True}, {"bytes": 4 * N}]
    plan = load(bundled(tmp_path / "b", made, steps, inputs=[SPEC, WEIGHT], buffers=kept), threads=2)
    assert isinstance(plan, CpuPlan)
    x, weights = drawn(0)[0], [drawn(i)[1] for i in range(5)]
    for w in weights:
        assert np.array_equal(plan(x, w)[0], 2 * w * x)
    assert [int(place[0]) for place in plan._program._results._by_place] == [w.ctypes.data for w in weights[2:]]


def test_two_threads_with_their_own_constants(made: Made, tmp_path: Path) -> None:
    """Each runs with what was made of its own, whoever made the prologue run last."""
    steps = [("add", "in1 in1", "tmp0", 1), ("mul", "tmp0 in0", "out0", 1)]
    kept = [{"bytes": 4 * N, "kept": True}, {"bytes": 4 * N}]
    plan = load(bundled(tmp_path / "b", made, steps, inputs=[SPEC, WEIGHT], buffers=kept))
    wrong: list[int] = []

    def work(seed: int) -> None:
        x, w = drawn(seed)
        wrong.extend(seed for _ in range(300) if not np.array_equal(plan(x, w)[0], 2 * w * x))

    workers = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for t in workers:
        t.start()
    for t in workers:
        t.join()
    assert not wrong


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def misaligned() -> np.ndarray:
    """An array whose address is no multiple of 16."""
    whole = np.zeros(4 * N + 64, np.uint8)
    start = next(i for i in range(64) if (whole.ctypes.data + i) % 16 == 4)
    return whole[start : start + 4 * N].view("f4")


REFUSED: dict[str, tuple[Callable[[np.ndarray, np.ndarray], tuple[list[Any], list[Any]]], type[Exception], str]] = {
    "dtype": (lambda x, o: ([x, x.astype("f8")], [o]), GuardError, "expected f32[4096], got f64[4096]"),
    "shape": (lambda x, o: ([x, x[1:]], [o]), GuardError, "expected f32[4096], got f32[4095]"),
    "strides": (lambda x, o: ([x, np.repeat(x, 2)[::2]], [o]), GuardError, "expected strides [1], got [2]"),
    "alignment": (lambda x, o: ([x, misaligned()], [o]), GuardError, "expected alignment to 16"),
    "too few": (lambda x, o: ([x], [o]), GuardError, "expected 2 inputs, got 1"),
    "no tensor": (lambda x, o: ([x, 3.0], [o]), TypeError, "expected a NumPy array or a tensor with DLPack, got float"),
    "overlap": (lambda x, o: ([x, x], [x]), GuardError, "out0 'o0' overlaps in0 'i0'"),
    "read-only": (lambda x, o: ([x, x], [read_only(o)]), TypeError, "got a read-only one"),
    "other endian": (lambda x, o: ([x, x.astype(">f4")], [o]), TypeError, "plans know no arrays of dtype >f4"),
    "negative strides": (lambda x, o: ([x, x[::-1]], [o]), GuardError, "expected strides [1], got [-1]"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_tensors_that_a_plan_was_not_made_for(name: str, made: Made, tmp_path: Path) -> None:
    plan = load(bundled(tmp_path / "b", made, STEPS))
    give, error, words = REFUSED[name]
    (out,), x = plan.empty_outputs(), plan.random_inputs()[0]
    inputs, outputs = give(x, out)
    with pytest.raises(error) as raised:
        plan.run(inputs, outputs)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arch": "sparc"}, f"the plan is for sparc, this machine is {architecture()}"),
        ({"features": ["sse2", "avx1024"]}, "CPUs with avx1024"),
    ],
)
def test_machines_that_a_plan_was_not_made_for(changes: dict[str, Any], words: str, made: Made, tmp_path: Path) -> None:
    here = {"target": "cpu", "arch": architecture(), "features": sorted(cpu_flags())[:3], "units": 2}
    load(bundled(tmp_path / "here", made, STEPS, device=here))
    with pytest.raises(MachineError) as raised:
        load(bundled(tmp_path / "b", made, STEPS, device=here | changes))
    assert words in str(raised.value) or "sse2, avx1024" in str(raised.value)


def test_code_that_was_changed_is_not_loaded(made: Made, tmp_path: Path) -> None:
    folder = bundled(tmp_path / "b", made, STEPS)
    file = folder / "binaries" / sha(made[0]["mul"])
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(BundleError, match="does not hash to its name"):
        load(folder)
    with pytest.raises(ObjectError, match="expected a binary of sha256"):
        load_object("0" * 64, made[0]["mul"])
    with pytest.raises(ObjectError, match="cannot be loaded"):
        load_object(sha(b"no code"), b"no code")


def test_an_executor_of_another_version_is_refused(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "VERSION", executors.VERSION + 1)
    with pytest.raises(ObjectError, match="expected an executor of version"):
        executors.Executor(*made[1])
    without = bundled(tmp_path / "b", made, STEPS)
    about = json.loads((without / "bundle.json").read_text())
    del about["executor"]
    (without / "bundle.json").write_text(json.dumps(about))
    with pytest.raises(BundleError, match="holds no executor"):
        load(without)


def test_an_arena_grows_and_keeps_what_is_in_use() -> None:
    arena = Arena()
    small = arena.memory(1000)
    large = arena.memory(5 << 20)
    assert arena.memory(4 << 20) is large
    assert large.size >= 5 << 20
    assert small.address % 4096 == large.address % 4096 == 0
    elsewhere: list[Any] = []
    other = threading.Thread(target=lambda: elsewhere.append(arena.memory(1000)))
    other.start()
    other.join()
    assert elsewhere[0] is not large
