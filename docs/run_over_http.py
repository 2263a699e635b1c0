"""Plans a graph over HTTP and runs the plan with NumPy and ctypes: what a client in another language has to do, too.

    fuseplan serve                          # in another terminal
    python docs/run_over_http.py            # needs NumPy alone

For plans of a CPU (docs/api.md, "Running a plan"). `fuseplan_client` does this with threads, checks
and constants, and runs those of GPUs, too.
"""

import ctypes
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
from numpy.typing import NDArray

HOST = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
GRAPH = {
    "format": "fuseplan.graph", "version": 1,
    "inputs": [{"name": "x", "shape": [256, 512], "dtype": "f32"}, {"name": "scale", "shape": [512], "dtype": "f32"}],
    "nodes": [{"name": "norm", "op": "rms_norm", "args": ["x", "scale"], "attrs": {"eps": 1e-6}},
              {"name": "y", "op": "silu", "args": ["norm"]}],
    "outputs": [{"node": "y"}],
}  # fmt: skip
LIBRARIES = {"openblas": "scipy_openblas32"}  # by the name in a plan, the wheel that has it


def resolve(graph: object) -> dict[str, Any]:
    """The answer with the plan; it is searched for, if nobody asked for this graph before."""
    body = json.dumps({"graph": graph, "seconds": 5}).encode()
    headers = {"Content-Type": "application/json", "Prefer": "wait=60"}
    with urlopen(Request(f"{HOST}/v1/plans:resolve", body, headers)) as response:
        answer = json.load(response)
    if "plan" not in answer:
        raise SystemExit(f"no plan yet: {answer}")
    return answer


def aligned(bytes_: int, alignment: int = 64) -> NDArray[np.uint8]:
    """Memory that begins at a multiple of the alignment: plans say what theirs is."""
    memory = np.zeros(bytes_ + alignment, np.uint8)
    start = -memory.ctypes.data % alignment
    return memory[start : start + bytes_]


def load(step: dict[str, Any], folder: str) -> Callable[..., None]:
    """The kernel of a step: a shared object for this architecture, whose name is its sha256."""
    for name in step["libraries"]:
        wheel = __import__(LIBRARIES[name])
        ctypes.CDLL(str(next(Path(wheel.get_lib_dir()).glob("*.so"))), ctypes.RTLD_GLOBAL)
    path = Path(folder, step["binary"])
    if not path.exists():
        with urlopen(f"{HOST}/v1/binaries/{step['binary']}") as response:
            path.write_bytes(response.read())
    entry = ctypes.CDLL(str(path))[step["entry"]]
    entry.argtypes, entry.restype = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_long, ctypes.c_long], None
    return entry


def run(plan: dict[str, Any], inputs: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """The plan's outputs, dense. Everything is run once; a caller with constants keeps what its prologue wrote."""
    for array, spec in zip(inputs, plan["inputs"], strict=True):
        strides = tuple(s * array.itemsize for s in spec["strides"])
        assert (array.shape, array.strides) == (tuple(spec["shape"]), strides), "the plan is for tensors that lie so"
        assert array.ctypes.data % spec["alignment_bytes"] == 0
    outputs = [aligned(4 * int(np.prod(spec["shape"]))) for spec in plan["outputs"]]  # f32 here
    places = {"in": inputs, "out": outputs, "tmp": [aligned(b["bytes"], b["alignment_bytes"]) for b in plan["buffers"]]}
    with tempfile.TemporaryDirectory() as folder:
        for step in plan["steps"]:  # in this order; those of the prologue come first
            refs = [*step["reads"], *step["writes"], *([step["scratch"]] if step.get("scratch") else [])]
            table = (ctypes.c_void_p * len(refs))(*(places[r["place"]][r["index"]].ctypes.data for r in refs))
            entry = load(step, folder)
            for task in range(step["tasks"]):  # threads may share these, each with a stack of 4 MiB
                entry(table, task, step["tasks"])
    for i, source in plan["aliases"]:  # outputs that no step writes
        outputs[i][:] = places[source["place"]][source["index"]].reshape(-1).view(np.uint8)
    return [o.view(np.float32).reshape(spec["shape"]) for o, spec in zip(outputs, plan["outputs"], strict=True)]


def main() -> None:
    answer = resolve(GRAPH)
    numbers = np.random.default_rng(0)
    x, scale = (aligned(4 * n).view(np.float32) for n in (256 * 512, 512))
    x[:], scale[:] = numbers.standard_normal(x.size), numbers.standard_normal(scale.size)
    x = x.reshape(256, 512)
    (y,) = run(answer["plan"], [x, scale])
    norm = x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + 1e-6) * scale
    largest = abs(y - norm / (1 + np.exp(-norm))).max()
    print(f"plan {answer['plan_key'][:12]}, {answer['cache']}; largest difference {largest:.1e}")


if __name__ == "__main__":
    main()
