"""Tasks write elements side by side: no compiler may write back what it read of another task's."""

import re
from pathlib import Path

import pytest

from codegen.devices.detection import detect
from codegen.families import FAMILIES
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.cpu import FLAGS, INCLUDE, find_compiler
from fusion_ir import building as build
from fusion_ir.ops import make_input
from tests.support.kernels import dense, graph_of


def test_padding_across_tasks_reads_nothing_of_its_output(tmp_path: Path) -> None:
    """Found by a random graph: g++'s predictive commoning kept the last of a loop's stores and wrote others back."""
    spec = dense(8, 6, 1, 1)
    graph = graph_of((spec,), build.pad(make_input(0, spec), (1, -1, 1, 1), (-1, -1, 2, 0), 1e-30))
    compiler = find_compiler(detect("cpu", ObjectCache(tmp_path), ceilings=False))
    if not compiler.own_flags():
        pytest.skip("looks at g++'s assembly")
    device = detect("cpu", ObjectCache(tmp_path), ceilings=False)
    kernel = FAMILIES["pointwise"].emit(
        graph, "pointwise{lanes=64,fetch=0,store=plain,tile=4096,block=0,interleave=0,tasks=1,rows=1}", device
    )
    (tmp_path / "unit.cpp").write_text(compiler.unit([kernel]))
    argv = [
        *compiler.command,
        "unit.cpp",
        "-S",
        "-o",
        "unit.s",
        *compiler.machine_flags(),
        *compiler.own_flags(),
        f"-I{INCLUDE}",
    ]
    argv += [f for f in FLAGS if not f.startswith("-Wl") and f != "-shared"]
    with compiler.slot() as slot:
        answer = slot.call({"job": "run", "argv": argv, "cwd": str(tmp_path)}, seconds=60.0)
    assert answer["returncode"] == 0, answer["output"]
    text = (tmp_path / "unit.s").read_text()
    moves = re.findall(r"vmovup[sd]\s+-?\d*\(%r\w+(?:,%r\w+(?:,\d)?)?\), %[xyz]mm", text)
    assert len(moves) <= 2, "the input is read once, in whole vectors or not; the output never"
