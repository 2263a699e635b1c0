"""`fuseplan source`: the generated source of a plan's kernels, with what each argument is, and as a file of its own."""

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from codegen.hardware.libraries import CUBLASLT
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.records import Buffer, Plan, Ref, TensorMapSpec, Written
from fusion_ir.text.printing import print_graph
from tests.service.cli.conftest import Cli
from tests.support.stored_plans import BINARY, DEVICE, chain, plan_of, sha, store_plan
from tuning_db.reading.graphs import Names
from tuning_db.requests import RequestKey
from tuning_db.store import Store

SOURCE = "// two ops\nvoid k(void* const* args) {}\n"


@pytest.fixture
def stored(tmp_path: Path) -> str:
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        return store_plan(store, chain(), Names(("hidden\x1b[2J",), ("outb",)), SOURCE)


def test_every_argument_is_named_as_in_the_graph(cli: Cli, stored: str) -> None:
    ended = cli("source", stored[:8])
    assert ended.code == 0
    assert SOURCE in ended.out
    assert "// kernel 0 of 1: pointwise{lanes=8}" in ended.out
    assert "//   in0: hidden\\x1b[2J, the plan's in0, f32[8]" in ended.out, "what a terminal obeys is shown"
    assert "//   out0: outb, the plan's out0, f32[8]" in ended.out


def test_one_kernel_as_json(cli: Cli, stored: str) -> None:
    found = json.loads(cli("source", stored, "--step", "0", "--json").out)
    assert found["plan_key"] == stored
    (step,) = found["steps"]
    assert step["source"] == SOURCE
    assert step["arguments"] == ["in0", "out0"]


def test_a_kernel_that_the_plan_has_not(cli: Cli, stored: str) -> None:
    ended = cli("source", stored, "--step", "1")
    assert ended.code == 2
    assert "expected 0 to 0, got 1" in ended.err


def several(*sources: str, prologue: bool = False, called: int | None = None) -> Plan:
    """A plan with a step of each source, of which the first may be a prologue and one a call of a library."""
    (step,) = plan_of(chain()).steps
    steps = [step.model_copy(update={"source": sha(text), "entry": f"k{i}"}) for i, text in enumerate(sources)]
    if called is not None:
        steps[called] = steps[called].model_copy(update={"libraries": (CUBLASLT,)})
    plan = plan_of(chain())
    if not prologue:
        return plan.model_copy(update={"steps": tuple(steps)})
    steps[0] = steps[0].model_copy(update={"prologue": True, "writes": (Ref(place="tmp", index=0),)})
    inputs = tuple(spec.model_copy(update={"constant": "w@1"}) for spec in plan.inputs)
    buffers = (Buffer(bytes=32, kept=True),)
    return plan.model_copy(update={"steps": tuple(steps), "inputs": inputs, "buffers": buffers})


def put(tmp_path: Path, plan: Plan, *sources: str, nodes: tuple[str, ...] = ()) -> str:
    with Store(f"sqlite:///{tmp_path / 'plans.db'}") as store:
        key = graph_key(chain())
        store.graphs.put(key, print_graph(chain()), Names(("hidden",), ("outb",), nodes))
        texts = {sha(text): text for text in sources}
        return store.plans.put(RequestKey(key, DEVICE.class_key), plan, "measured", {sha(BINARY): BINARY}, texts)


def kernel(name: str) -> str:
    """Source of one CPU kernel, exp over f32, in a file over the vocabulary as the database stores it."""
    lines = ("  const float* in = (const float*)args[0];", "  store<1, 1>((float*)args[1], exp_(load<1, 1>(in)));")
    body = "\n".join((f'extern "C" void {name}(void* const* args, long from, long to) {{', *lines, "}"))
    return f'#include "loops_cpu.h"\nnamespace k0 {{\n#line 1 "{name}"\n{body}\n}}\n'


def test_a_file_that_compiles_by_itself(cli: Cli, tmp_path: Path) -> None:
    """Two kernels with the same headers, one of the prologue, and a call of a library, which is said and left out."""
    sources = (kernel("first"), '{"library": "x"}', kernel("second"))
    key = put(tmp_path, several(*sources, prologue=True, called=1), *sources)
    file = tmp_path / "out" / "all.cpp"
    file.parent.mkdir()
    ended = cli("source", key[:8], "--standalone", "-o", file)
    assert (ended.code, ended.out) == (0, ""), ended.err
    text = file.read_text()
    assert '#include "' not in text
    assert text.count("// ---- loops_cpu.h\n") == 1
    for words in (
        "// kernel 0 of 3: pointwise{lanes=8}\n// of the prologue: runs once for each version of the constants\n",
        "// kernel 1 of 3: pointwise{lanes=8}\n// no kernel: a call of cublaslt, as the JSON says\n",
        '//   {"library": "x"}\n',
        "//   in0: hidden, the plan's in0, f32[8]\n",
        "namespace k0 {\nextern",
        "namespace k1 {\nextern",
        f"// plan {key} for Test CPU; compile it with\n//\n//   g++ -c -std=c++17 -O3 ",
    ):
        assert words in text, words
    command = shlex.split(next(line for line in text.splitlines() if line.startswith("//   g++")).removeprefix("//"))
    assert command[-3:] == ["all.cpp", "-o", "all.o"]
    if shutil.which("g++"):
        subprocess.run(command, cwd=file.parent, check=True)
        assert (file.parent / "all.o").stat().st_size
    printed = cli("source", key[:8], "--standalone", "--step", "2")
    assert printed.code == 0
    assert " second(void" in printed.out
    assert " first(void" not in printed.out
    assert " kernels.cpp -o kernels.o\n" in printed.out


def test_what_cannot_be_a_file(cli: Cli, tmp_path: Path) -> None:
    key = put(tmp_path, several(SOURCE, called=0), SOURCE)
    ended = cli("source", key, "--standalone")
    assert ended.code == 2
    assert "expected kernels to compile, got 1 step of it, each a call of a library" in " ".join(ended.err.split())
    assert cli("source", key, "--standalone", "--json").code == 2
    assert "no kernel: a call of cublaslt" in cli("source", key).out
    other = put(tmp_path, several('#include "gone.h"\n'), '#include "gone.h"\n')
    ended = cli("source", other, "--standalone")
    assert ended.code == 1
    assert "includes gone.h, which this version has not" in " ".join(ended.err.split())
    ended = cli("source", other, "-o", tmp_path / "none" / "a.cpp")
    assert ended.code == 2
    assert "No such file or directory" in " ".join(ended.err.split())
    missing = put(tmp_path, several("never stored"))
    ended = cli("source", missing, "--standalone")
    assert ended.code == 1
    assert "kernel 0: its source is not stored" in ended.err


def test_tensor_maps_are_arguments_too(cli: Cli, tmp_path: Path) -> None:
    """Tensor maps are listed behind the tensors, as the kernel has them, with their innermost axis first."""
    plan = several(SOURCE)
    spec = TensorMapSpec(
        argument=1, sizes=(64, 64), strides_bytes=(128,), box=(64, 8), swizzle=128, dtype="bf16", element_bytes=2
    )
    steps = tuple(step.model_copy(update={"tensor_maps": (spec,)}) for step in plan.steps)
    key = put(tmp_path, plan.model_copy(update={"steps": steps}), SOURCE)
    shown = cli("source", key[:8]).out
    assert "//   out0: outb, the plan's out0, f32[8]\n" in shown
    assert "//   map0: a tensor map of out0, boxes of [64, 8], swizzled over 128 B" in shown


def test_temporaries_are_named_as_in_the_plans_table(cli: Cli, tmp_path: Path) -> None:
    """A temporary is named by the graph's tensor that it holds, or else by its purpose, although its buffer holds
    another tensor later."""
    (step,) = plan_of(chain()).steps
    first, second, third = (Ref(place="tmp", index=0), Ref(place="tmp", index=1), Ref(place="out", index=0))
    steps = (
        step.model_copy(update={"source": sha(SOURCE), "writes": (first,), "written": (Written(nodes=(1,)),)}),
        step.model_copy(
            update={
                "source": sha(SOURCE), "reads": (first,), "writes": (first, second), "scratch": second,
                "written": (Written(nodes=(2,), whole=False), None),
            }
        ),
        step.model_copy(update={"source": sha(SOURCE), "reads": (first, second), "writes": (third,)}),
    )  # fmt: skip
    plan = plan_of(chain()).model_copy(update={"steps": steps, "buffers": (Buffer(bytes=4096), Buffer(bytes=512))})
    key = put(tmp_path, plan, SOURCE, nodes=("", "act", "outb"))
    for options in ((), ("--standalone",)):
        lines = [line for line in cli("source", key, *options).out.splitlines() if line.startswith("//   ")]
        assert [line.removeprefix("//   ") for line in lines if "g++" not in line] == [
            "in0: hidden, the plan's in0, f32[8]",
            "out0: tmp0 = act, f32[8]",
            "in0: tmp0 = act, f32[8]",
            "out0: tmp0 for outb, 4.00 KiB",
            "out1: tmp1, 512 B",
            "scratch: tmp1, 512 B",
            "in0: tmp0 for outb, 4.00 KiB",
            "in1: tmp1, 512 B",
            "out0: outb, the plan's out0, f32[8]",
        ], options
