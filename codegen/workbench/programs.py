"""Programs for the timing child: kernels and plans as steps over a table of tensors, with their binaries as files."""

from typing import Any

from codegen.kernel import Kernel
from codegen.sandbox.object_cache import ObjectCache
from fusion_ir.accuracy.tolerance import Order
from fusion_ir.core.graph import Graph
from fusion_ir.records import Plan

# steps, of which the first `once` are a prologue; bytes of temporary buffers; kept: buffers that hold what the prologue
# left; aliases: outputs that are other entries of the table; order: of operations (`fusion_ir.accuracy.tolerance`)
Program = dict[str, Any]


class MissingBinary(LookupError):
    """A plan's binary is not in the object cache."""


def kernel_program(kernel: Kernel, binary: str, segment: Graph, cache: ObjectCache) -> Program:
    """The program of a kernel that computes `segment`. binary: its SHA-256. Raises MissingBinary."""
    args = [("in", i) for i in range(len(segment.inputs))] + [("out", i) for i in range(len(segment.outputs))]
    scratch = [kernel.launch.scratch_bytes] if kernel.launch.scratch_bytes else []
    step = {
        "binary": _file(binary, cache),
        "entry": kernel.entry,
        "libraries": kernel.libraries,
        "tasks": kernel.launch.tasks,
        "grid": kernel.launch.grid,
        "block": kernel.launch.block,
        "shared_bytes": kernel.launch.shared_bytes,
        "cluster": kernel.launch.cluster,
        "tensor_maps": [m.model_dump(mode="json") for m in kernel.launch.tensor_maps],
        "args": args + [("tmp", 0)] * len(scratch),
        "reads": len(segment.inputs),
    }
    return {"steps": [step], "once": 0, "buffers": scratch, "kept": [], "aliases": [], "order": "own"}


def plan_program(plan: Plan, cache: ObjectCache) -> Program:
    """The program of a whole plan. Raises MissingBinary."""
    steps = [
        {
            "binary": _file(step.binary, cache),
            "entry": step.entry,
            "libraries": step.libraries,
            "tasks": step.tasks,
            "grid": step.grid,
            "block": step.block,
            "shared_bytes": step.shared_bytes,
            "cluster": step.cluster,
            "tensor_maps": [m.model_dump(mode="json") for m in step.tensor_maps],
            "args": [(ref.place, ref.index) for ref in step.args],
            "reads": len(step.reads),
        }
        for step in plan.steps
    ]
    aliases = [(i, (ref.place, ref.index)) for i, ref in plan.aliases]
    return {
        "steps": steps,
        "once": len(plan.prologue),
        "buffers": [b.bytes for b in plan.buffers],
        "kept": [i for i, b in enumerate(plan.buffers) if b.kept],
        "aliases": aliases,
        "order": order_of(plan),
    }


def order_of(plan: Plan) -> Order:
    """The order of operations that the plan may use, by its record of rewrites."""
    if plan.rounds_elsewhere:
        return "elsewhere"
    return "own" if plan.numerics == "exact" else "any"


def _file(sha: str, cache: ObjectCache) -> str:
    path = cache.path(sha)
    if path is None:
        raise MissingBinary(f"binary {sha} is not in the object cache {cache.folder}")
    return str(path.resolve())
