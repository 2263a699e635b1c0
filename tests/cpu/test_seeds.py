"""`python -m benchmarks.seeds`: the graphs that it compares are one computation, and its pages say what was found. No
times. Widths and axis mappings have tests of their own (test_epilogue_widths, test_contract_roles)."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="needs PyTorch: the extra `bench`")

from benchmarks.corpus.pytorch import to_numpy, to_torch  # noqa: E402
from benchmarks.seeds import chain as seeds_chain  # noqa: E402
from benchmarks.seeds import rope as seeds_rope  # noqa: E402
from benchmarks.seeds import run as seeds  # noqa: E402
from benchmarks.seeds import sweep as seeds_sweep  # noqa: E402
from benchmarks.seeds.place import HostSides, Place, place  # noqa: E402
from benchmarks.seeds.plot import Panel, panels_svg  # noqa: E402
from codegen.devices.detection import detect  # noqa: E402
from codegen.families import FAMILIES  # noqa: E402
from codegen.families import pointwise as pointwise_family  # noqa: E402
from codegen.gemm import call  # noqa: E402
from codegen.hardware.gpus import specified  # noqa: E402
from codegen.sandbox.object_cache import ObjectCache  # noqa: E402
from fusion_ir.core.graph import Graph  # noqa: E402
from fusion_ir.dtype import f16, f32  # noqa: E402
from fusion_ir.formats import read  # noqa: E402
from fusion_ir.keys.graph_key import graph_key  # noqa: E402
from fusion_ir.ops.contract import ORDERED_PRODUCTS  # noqa: E402
from fusion_ir.reference.interpreter import interpret  # noqa: E402
from fusion_ir.reference.sample_inputs import sample_inputs  # noqa: E402
from scheduler.budget import Budget  # noqa: E402
from scheduler.interfaces import Forgetful  # noqa: E402
from scheduler.tune import tune  # noqa: E402
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE  # noqa: E402

TOKENS, WIDTH = 10, 24


@pytest.mark.parametrize("heads", seeds_chain.HEADS)
def test_operations_of_each_form_are_those_that_are_known(heads: int) -> None:
    for name, known in seeds_chain.KNOWN_GFLOP[heads].items():
        for dtype in (f16, f32):
            assert round(seeds_chain.gflop(seeds_chain.form(name, heads, dtype)), 2) == known


@pytest.mark.parametrize("heads", [4, 1])
def test_all_forms_compute_the_same(heads: int) -> None:
    arrays = seeds_chain.arrays_of(heads, f32, 0, TOKENS, WIDTH)

    def computed(name: str) -> np.ndarray:
        graph = seeds_chain.form(name, heads, f32, TOKENS, WIDTH)
        return interpret(graph, [arrays[n] for n in seeds_chain.FORMS[name][1]])[0]

    given = computed(seeds_chain.GIVEN)
    for name in seeds_chain.forms_of(heads):
        np.testing.assert_allclose(computed(name), given, rtol=1e-4, atol=1e-4)
    names = seeds_chain.FORMS[seeds_chain.GIVEN][1]
    (theirs,) = seeds_chain.torch_given(heads, *(to_torch(arrays[n]) for n in names))
    np.testing.assert_allclose(to_numpy(theirs), given, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("heads", seeds_chain.HEADS)
def test_the_first_form_is_what_was_printed(heads: int) -> None:
    """Form GIVEN has the inputs of the printed graph in their order, and its work in Gflop, so that it can stand in for
    that graph at other dtypes. The printed graph has three contractions."""
    printed, ours = seeds_chain.as_printed(heads, f16), seeds_chain.form(seeds_chain.GIVEN, heads, f16)
    assert [(i.sizes, i.dtype, i.constant is None) for i in printed.inputs] == [
        (i.sizes, i.dtype, i.constant is None) for i in ours.inputs
    ]
    assert seeds_chain.gflop(printed) == seeds_chain.gflop(ours)
    assert [n.op for n in printed.nodes].count("contract") == 3


@pytest.mark.parametrize("heads", seeds_chain.HEADS)
def test_the_planner_folds_where_that_saves_a_product(heads: int) -> None:
    """Given the form as printed, by predictions: a prologue for one head, none for twelve."""
    plan = tune(seeds_chain.as_printed(heads, f16), specified("h200", "13.0"), Budget(0), Forgetful(), None)
    assert ("fold-through-bias" in plan.rewrites) == (heads == 1)
    assert bool(plan.prologue) == (heads == 1)
    assert any(r.kind == "alternative" for r in plan.reasons), "explain prints what the other forms would cost"


@pytest.mark.parametrize("part", seeds_rope.PARTS)
def test_the_cut_of_a_rotary_embedding(part: str) -> None:
    """Operands before, the rest behind: nothing is lost, and only the product is computed by neither."""
    graph = seeds_rope.PARTS[part].graph()
    before, behind = seeds_rope.cut_at_product(graph)
    assert before is not None
    assert behind.inputs[: len(graph.inputs)] == graph.inputs
    assert [o.strides for o in behind.outputs] == [o.strides for o in graph.outputs]
    assert not [n for half in (before, behind) for n in half.nodes if n.op == "contract"]
    computed = {n.op for half in (before, behind) for n in half.nodes}
    assert computed == {n.op for n in graph.nodes} - {"contract"}


def test_one_kernel_takes_a_rotary_embedding_whole() -> None:
    """The contraction is inlined by the pointwise family, on a CPU and on a GPU."""
    for part in seeds_rope.PARTS.values():
        for device in (CPU_DEVICE, CUDA_DEVICE):
            family, graph = FAMILIES["pointwise"], part.graph()
            assert family.accepts(graph, device) is None
            kernel = family.emit(graph, family.space(graph, device)[0], device)
            assert kernel.family == "pointwise"


def test_limits_of_families_are_lifted_and_put_back() -> None:
    short, long = seeds_sweep.product(64, 4096, 8, "f32"), seeds_sweep.product(64, 4096, 32, "f32")
    for device in (CPU_DEVICE, CUDA_DEVICE):
        assert "pointwise" in {k.family for k in seeds_sweep.kernels(short, 8, device, 1)}
        assert "pointwise" in {k.family for k in seeds_sweep.kernels(long, 32, device, 1)}
    assert "aten" in {k.family for k in seeds_sweep.kernels(short, 8, CPU_DEVICE, 1)}
    assert FAMILIES["pointwise"].accepts(long, CPU_DEVICE) is not None
    assert FAMILIES["aten"].accepts(short, CPU_DEVICE) is not None
    assert pointwise_family.ORDERED_PRODUCTS == ORDERED_PRODUCTS
    assert call.LEAST_DEPTH > 2


def test_a_point_of_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds_sweep, "SHAPES", ((8, 32),))
    monkeypatch.setattr(seeds_sweep, "DEPTHS", (1, 4))
    monkeypatch.setattr(seeds_sweep, "DTYPE_NAMES", ("f32",))
    monkeypatch.setattr(seeds_sweep, "FIRST", 1)
    cache = ObjectCache(tmp_path / "cache")
    here = Place("cpu", detect("cpu", cache, ceilings=False), cache, None)
    first = next(iter(seeds_sweep.rows(here, [])))
    assert first["us"]["pointwise"] > 0
    again = list(seeds_sweep.rows(here, [first]))
    assert [r["k"] for r in again] == [4], "goes on where it left off"
    assert all("failed" in r and r["failed"].get("pointwise") is None for r in again)
    text = "\n".join(seeds_sweep.page([first, *again], True))
    assert seeds_sweep.winner(first) in text


def test_plots_are_pictures_within_their_frame() -> None:
    text = panels_svg("a < b", [Panel("p", {"x": [(1, 1.0), (256, 50.0)], "y": [(16, 2.0)]})] * 3, 2, "K", "t", 10.0)
    root = ElementTree.fromstring(text)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    circles = [(float(e.attrib["cx"]), float(e.attrib["cy"])) for e in root.iter() if e.tag.endswith("circle")]
    assert len(circles) == 9
    assert all(0 < x < width and 0 < y < height for x, y in circles)
    assert circles[0][1] > circles[1][1], "slower is higher"


def test_a_library_product_between_our_kernels(tmp_path: Path) -> None:
    """The cut with PyTorch's mm gives what the whole graph gives."""
    text = (seeds_rope.EXAMPLES / "mistral_rope_forward.nvfuser.py").read_text()
    small = text.replace("4096, 4096", "32, 4096").replace("4096, 1024", "32, 1024").replace("1, 4096", "1, 32")
    small = small.replace("4096, 32, 128", "32, 32, 128").replace("32, 4096, 128", "32, 32, 128")
    graph: Graph = read(small.replace("4096, 8, 128", "32, 8, 128").replace("4096, 128]", "32, 128]")).graph
    cache = ObjectCache(tmp_path / "cache")
    here = Place("cpu", detect("cpu", cache, ceilings=False), cache, HostSides(cache), budget_s=0.0)
    inputs = sample_inputs(graph, 0)
    found = seeds_rope._library(graph, here)(*here.sides.tensors(inputs))  # type: ignore[union-attr]
    for got, wanted in zip(found, interpret(graph, inputs), strict=True):
        np.testing.assert_allclose(to_numpy(got).astype(np.float32), wanted.astype(np.float32), rtol=2e-2, atol=2e-2)


def test_predictions_are_marked_and_results_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds_sweep, "SHAPES", ((8, 32),))
    stem = tmp_path / "seeds"
    monkeypatch.setattr("sys.argv", ["", "sweep", "--target", "h200", "--out", str(stem)])
    assert seeds.main() == 0
    found = json.loads(stem.with_suffix(".json").read_text())["h200"]["sweep"]
    assert not found["facts"]["measured"]
    assert len(found["rows"]) == len(seeds_sweep.DEPTHS) * len(seeds_sweep.DTYPE_NAMES)
    page = stem.with_suffix(".md").read_text()
    assert "predicted" in page
    assert (tmp_path / "seeds_sweep_h200.svg").exists()
    monkeypatch.setattr(seeds_sweep, "kernels", lambda *_: pytest.fail("these points are known"))
    assert seeds.main() == 0


def test_examples_of_one_product_in_two_spellings() -> None:
    names = ("contraction_of_axes.json", "contraction_as_sum.nvfuser.py")
    keys = {graph_key(read((seeds_rope.EXAMPLES / name).read_text(), filename=name).graph) for name in names}
    assert len(keys) == 1


def test_a_place_that_is_not_there_times_nothing() -> None:
    with place("h200", None, 1.0, 5, 0) as here:
        assert not here.is_there
        assert here.sides is None
        plan = here.plan(seeds_sweep.product(64, 64, 4, "f32"))
        assert plan.time_us is None
        assert plan.predicted_us
