"""The workbench: right kernels are timed, wrong ones found out, broken ones survived; plans run and are compared."""

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from codegen.child.serve import race_seconds
from codegen.devices.detection import detect
from codegen.kernel import Kernel, Launch
from codegen.sandbox.limits import Limits
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.compiler import Binary
from codegen.toolchain.cpu import find_compiler
from codegen.workbench.programs import MissingBinary
from codegen.workbench.step_check import Meaning, Meanings, judge_steps
from codegen.workbench.timing_jobs import RunError
from codegen.workbench.workbench import Workbench
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.dtype import bf16, bool_, f32, i64
from fusion_ir.ops import make, make_input
from fusion_ir.records import Buffer, Measurement, Plan, Ref, Search, Status, Step, TensorSpec
from tests.support.devices import with_small_cache
from tests.support.kernels import SUM, bare_headers, dense, graph_of, sum_graph, sum_kernel

N = 1001  # 4004 bytes: neither a multiple of 64, nor of a page
LIMITS = Limits(kernel_seconds=1.0, memory_bytes=3 << 30, timing_seconds=0.05, output_bytes=1 << 16)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    folder = tmp_path_factory.mktemp("bench")
    cache = ObjectCache(folder / "cache")
    device = with_small_cache(detect("cpu", cache, ceilings=False))
    with Workbench(
        device, cache, LIMITS, compiler=find_compiler(device, LIMITS, bare_headers(folder / "include"))
    ) as made:
        yield made


def only(bench: Workbench, body: str, before: str = "", name: str = "k") -> Measurement:
    (row,) = bench.measure(sum_graph(N), "segment", [sum_kernel(N, name, body, before=before)])
    return row


def test_a_right_kernel_is_timed(bench: Workbench) -> None:
    row = only(bench, SUM)
    assert row.status is Status.ok, row.detail
    assert len(row.samples_us) >= 3
    assert all(t > 0 for t in row.samples_us)
    assert row.max_rel_error == 0.0
    assert row.binary
    assert row.compile_seconds > 0
    assert row.segment_key == "segment"
    assert row.device_key == bench.device.class_key
    assert "cold" in row.detail
    assert "warm" in row.detail
    assert only(bench, SUM).compile_seconds == 0.0


def test_compilers_stand_still_while_kernels_are_timed_and_not_while_they_are_checked(
    bench: Workbench, plans: tuple[Graph, dict[str, Plan]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of checks are timed where they count as first runs of a race: for schedules of a segment, not for plans."""
    pauses: list[str] = []

    @contextmanager
    def paused() -> Generator[None]:
        pauses.append("begins")
        yield
        pauses.append("ends")

    monkeypatch.setattr(bench._builder, "paused", paused)  # pyright: ignore[reportPrivateUsage]
    row = only(bench, "volatile int another = 0; another = 1;" + SUM)
    assert row.status is Status.ok, row.detail
    assert pauses == ["begins", "ends"] * 4, "two checks, the race, and runs from cache"
    pauses.clear()
    assert only(bench, "", name="wrong").status is Status.wrong_result
    assert pauses == ["begins", "ends"], "one check"
    pauses.clear()
    graph, table = plans
    (timing,) = bench.measure_plans(graph, [table["right"]], seconds=0.05)
    assert timing.status is Status.ok, timing.detail
    assert pauses == ["begins", "ends"] * 2, "the race, and runs from cache"


def test_a_row_says_what_could_explain_it(bench: Workbench) -> None:
    """The row of a timed kernel holds toolchain, driver, report and surroundings; the row of a wrong kernel holds the
    toolchain and the compiler's report alone."""
    good, wrong = bench.measure(sum_graph(N), "segment", [sum_kernel(N, "k", SUM), sum_kernel(N, "w", "out[0] = 0;")])
    assert (good.toolchain, good.driver) == (bench.device.toolchain, bench.device.driver)
    assert good.input_sets is not None
    assert good.input_sets > 1
    assert good.warm_us is not None
    assert 0 < good.warm_us < 1e6
    seen = good.surroundings
    assert seen is not None
    assert seen.ceilings == bench.device.ceilings
    assert 0 < seen.seconds < 60
    assert len(seen.cpus) == bench.device.units
    assert seen.switches is not None
    assert seen.start.load is not None, "every Linux says that"
    assert (wrong.status, wrong.surroundings, wrong.warm_us) == (Status.wrong_result, None, None)
    assert wrong.toolchain == good.toolchain
    for row in (good, wrong):
        assert row.report is not None
        assert row.report.code_bytes


@pytest.mark.sweep(0.2)
@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param("for (long i = low; i < high; i++) out[i] = a[i] - b[i];", Status.wrong_result, id="wrong"),
        pytest.param(SUM + "if (task == 1) out[n - 1] = 0;", Status.wrong_result, id="one element wrong"),
        pytest.param(
            "for (long i = low; i < high - 1; i++) out[i] = a[i] + b[i];", Status.wrong_result, id="not all written"
        ),
        pytest.param("", Status.wrong_result, id="nothing written"),
        pytest.param(
            SUM + "if (task == 0) ((volatile float*)out)[n] = 0;", Status.wrong_result, id="writes just behind"
        ),
        pytest.param(SUM + "if (task == 0) ((volatile float*)out)[n + 16] = 0;", Status.crashed, id="writes behind"),
        pytest.param(SUM + "if (task == 0) ((volatile float*)out)[-1] = 0;", Status.wrong_result, id="writes before"),
        pytest.param(SUM + "if (task == 0) (void)((volatile float*)a)[n + 3];", Status.crashed, id="reads behind"),
        pytest.param(SUM + "if (task == 0) (void)((volatile float*)b)[-1];", Status.crashed, id="reads before"),
        pytest.param(SUM + "if (task == 0) ((volatile float*)a)[0] = 1;", Status.crashed, id="writes an input"),
        pytest.param("*(volatile int*)8 = 1;", Status.crashed, id="segmentation fault"),
        pytest.param("abort();", Status.crashed, id="abort"),
        pytest.param("volatile int zero = 0, x = 7 % zero;", Status.crashed, id="division by zero"),
        pytest.param("for (volatile int x = 0;;) x = x;", Status.timed_out, id="spins"),
        pytest.param(
            "if (task == 1) for (volatile int x = 0;;) x = x;", Status.timed_out, id="spins in another thread"
        ),
        pytest.param(
            "for (;;) ((volatile char*)operator new(1 << 26))[0] = 1;", Status.out_of_memory, id="allocates without end"
        ),
        pytest.param('for (;;) puts("x");', Status.crashed, id="prints without end"),
        pytest.param("exit(0);", Status.crashed, id="exits"),
        pytest.param("not C++", Status.compile_failed, id="no C++"),
    ],
)
def test_bad_kernels_have_a_status_and_the_next_is_right(bench: Workbench, body: str, status: Status) -> None:
    before = 'extern "C" int puts(const char*); extern "C" void exit(int); extern "C" void abort();'
    row = only(bench, body, before)
    assert row.status is status, row.detail
    assert row.samples_us == ()
    assert row.detail
    start = time.monotonic()
    assert only(bench, SUM).status is Status.ok
    assert time.monotonic() - start < 5


@pytest.mark.turn("bad kernels")
def test_bad_kernels_between_good_ones(bench: Workbench) -> None:
    bodies = [SUM, "*(volatile int*)8 = 1;", SUM + " ", "for (volatile int x = 0;;) x = x;", "", "no", SUM + "  "]
    rows = bench.measure(sum_graph(N), "s", [sum_kernel(N, f"m{i}", body) for i, body in enumerate(bodies)])
    expected = [
        Status.ok,
        Status.crashed,
        Status.ok,
        Status.timed_out,
        Status.wrong_result,
        Status.compile_failed,
        Status.ok,
    ]
    assert [r.status for r in rows] == expected
    assert [r.schedule for r in rows] == [f"m{i}" for i in range(len(bodies))]
    assert [bool(r.samples_us) for r in rows] == [s is Status.ok for s in expected]


def test_a_kernel_that_is_right_only_over_the_first_poison(bench: Workbench) -> None:
    """An output that happens to be the poison: all ones are -1 as an integer."""
    spec = dense(64, dtype=i64)
    graph = graph_of((spec,), make("bitwise_or", [make_input(0, spec), make("bitwise_not", [make_input(0, spec)])]))
    lazy = Kernel("lazy", 'extern "C" void lazy(void* const*, long, long) {}', "cpu", "hand", "lazy", Launch())
    (row,) = bench.measure(graph, "s", [lazy])
    assert row.status is Status.wrong_result


def test_bool_outputs_that_are_not_written_are_found(bench: Workbench) -> None:
    spec = dense(64, dtype=bool_)
    graph = graph_of((spec,), make("logical_not", [make_input(0, spec)]))
    lazy = Kernel(
        "lazy_bool", 'extern "C" void lazy_bool(void* const*, long, long) {}', "cpu", "hand", "lazy", Launch()
    )
    (row,) = bench.measure(graph, "s", [lazy])
    assert row.status is Status.wrong_result
    assert "neither 0 nor 1" in row.detail


def test_what_is_far_slower_than_the_best_is_not_timed_again(bench: Workbench) -> None:
    """The row of such a kernel has the times of its two checks as samples, and status ok: its result is right, so that
    it could still be used."""
    slow = "for (volatile int x = 0; x < 60000000; x = x + 1) ;" + SUM
    kernels = [sum_kernel(N, "slow", slow), sum_kernel(N, "best", SUM)]
    row, _ = bench.measure(sum_graph(N), "segment", kernels)
    assert row.status is Status.ok, row.detail
    assert len(row.samples_us) == 2
    assert "stopped after its checks" in row.detail


def test_a_reduction_with_a_narrow_accumulator_and_one_that_drops_an_element(bench: Workbench) -> None:
    """A row sum over bf16 of two outputs: in f32; in bf16; in f32 without the last element of one row."""
    spec = dense(64, 1024, dtype=bf16)
    x = make("cast", [make_input(0, spec)], {"dtype": f32})
    graph = graph_of((spec,), make("sum", [x], {"axes": (1,)}))
    before = """static float of(unsigned u) { float f; __builtin_memcpy(&f, &u, 4); return f; }
    static float wide(unsigned short b) { return of((unsigned)b << 16); }
    static float narrow(float f) {
      unsigned u; __builtin_memcpy(&u, &f, 4); return of((u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000); }"""
    bodies = {
        "in_f32": "s += wide(x[i]);",
        "in_bf16": "s = narrow(s + wide(x[i]));",
        "one_dropped": "if (row != 63 || i != 1023) s += wide(x[i]);",
    }
    kernels = [
        Kernel(
            name,
            f"""{before} extern "C" void {name}(void* const* args, long task, long tasks) {{
            for (long row = task; row < 64; row += tasks) {{
              const unsigned short* x = (const unsigned short*)args[0] + row * 1024; float s = 0;
              for (int i = 0; i < 1024; i++) {{ {body} }}
              ((float*)args[1])[row] = s; }} }}""",
            "cpu",
            "hand",
            name,
            Launch(tasks=2),
        )
        for name, body in bodies.items()
    ]
    rows = bench.measure(graph, "s", kernels)
    assert [r.status for r in rows] == [Status.ok, Status.wrong_result, Status.wrong_result], [r.detail for r in rows]


def test_sums_are_checked_with_integers_too(bench: Workbench) -> None:
    """A kernel that keeps its sum in bf16 precision loses integers, whatever tolerance random data gets."""
    spec = dense(4, 4096)
    graph = graph_of((spec,), make("sum", [make_input(0, spec)], {"axes": (1,)}))
    body = """const float* x = (const float*)args[0] + task * 4096; double s = 0; for (int i = 0; i < 4096; i++) s +=
    x[i]; ((float*)args[1])[task] = (float)s"""
    kernels = [
        Kernel(
            name,
            f'extern "C" void {name}(void* const* args, long task, long) {{ {body}{more}; }}',
            "cpu",
            "hand",
            name,
            Launch(tasks=4),
        )
        for name, more in (("right", ""), ("off_by_little", " * (1.0f + 6e-7f)"))
    ]
    rows = bench.measure(graph, "s", kernels)
    assert [r.status for r in rows] == [Status.ok, Status.wrong_result], [r.detail for r in rows]


def test_strided_and_empty_tensors(bench: Workbench) -> None:
    """Inputs and outputs with room between rows; what lies there must stay."""
    spec = dense(3, 5, dtype=bf16, strides=(8, 1), alignment=2)
    node = make("neg", [make_input(0, spec)])
    graph = Graph((spec,), (OutputSpec(node, (7, 1)),))
    loop = "for (int i = 0; i < 3; i++) for (int j = 0; j < {}; j++) to[i * 7 + j] = from[i * 8 + j] ^ 0x8000;"
    kernels = [
        Kernel(
            name,
            f"""extern "C" void {name}(void* const* args, long, long) {{
            const unsigned short* from = (const unsigned short*)args[0]; unsigned short* to = (unsigned short*)args[1];
            {loop.format(width)} }}""",
            "cpu",
            "hand",
            name,
            Launch(),
        )
        for name, width in (("fits", 5), ("into_gaps", 6))
    ]
    fits, into_gaps = bench.measure(graph, "s", kernels)
    assert fits.status is Status.ok, fits.detail
    assert into_gaps.status is not Status.ok
    nothing = dense(0, 4)
    empty = graph_of((nothing,), make("neg", [make_input(0, nothing)]))
    idle = Kernel("idle", 'extern "C" void idle(void* const*, long, long) {}', "cpu", "hand", "idle", Launch())
    (row,) = bench.measure(empty, "s", [idle])
    assert row.status is Status.ok, row.detail


def _plan(
    graph: Graph, binary: Binary, steps: list[tuple[tuple[Ref, ...], tuple[Ref, ...]]], buffers: int, outputs: int
) -> Plan:
    spec = TensorSpec(shape=(N,), dtype="f32", strides=(1,), alignment_bytes=16)
    made = tuple(
        Step(
            family="hand",
            schedule="",
            binary=binary.sha256,
            entry=binary.entry,
            reads=reads,
            writes=writes,
            tasks=2,
            time_us=None,
            bound_us=0.0,
            bytes=12 * N,
            operations=N,
            nodes=(),
            segment_key="",
        )
        for reads, writes in steps
    )
    return Plan(
        graph_key="",
        numerics="reassociate",
        device=_device,
        inputs=(spec,) * len(graph.inputs),
        outputs=(spec,) * outputs,
        buffers=(Buffer(bytes=4 * N),) * buffers,
        steps=made,
        aliases=((1, Ref(place="in", index=0)), (2, Ref(place="out", index=0))),
        time_us=None,
        spread=None,
        unfused_us=None,
        lower_bound_us=0.0,
        search_gap=None,
        copy_us=None,
        max_rel_error=None,
        search=Search(seconds=0, candidates=0, measured=0, complete=False),
        version="0",
    )


def _ref(text: str) -> Ref:
    return Ref(place=text[:-1], index=int(text[-1]))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def plans(bench: Workbench) -> tuple[Graph, dict[str, Plan]]:
    """(in0 + in1) + in1, in0 and the first output again; computed by two steps, with one step missing, and by one
    that spins."""
    global _device
    _device = bench.device
    specs = (dense(N), dense(N))
    a, b = make_input(0, specs[0]), make_input(1, specs[1])
    total = make("add", [make("add", [a, b]), b])
    graph = graph_of(specs, total, a, total)
    add, spin = bench.compile_for_plans(
        [sum_kernel(N, "plan_add"), sum_kernel(N, "plan_spin", "for (volatile int x = 0;;) x = x;")]
    )
    assert isinstance(add, Binary)
    assert isinstance(spin, Binary)
    first = ((_ref("in0"), _ref("in1")), (_ref("tmp0"),))
    second = ((_ref("tmp0"), _ref("in1")), (_ref("out0"),))
    return graph, {
        "right": _plan(graph, add, [first, second], 1, 3),
        "wrong": _plan(graph, add, [second], 1, 3),
        "spins": _plan(graph, spin, [second], 1, 3),
    }


@pytest.mark.turn("bad kernels")
def test_plans_are_checked_and_timed_together(bench: Workbench, plans: tuple[Graph, dict[str, Plan]]) -> None:
    graph, table = plans
    timings = bench.measure_plans(graph, [table["wrong"], table["right"], table["spins"], table["right"]], seconds=0.05)
    assert [t.status for t in timings] == [Status.wrong_result, Status.ok, Status.timed_out, Status.ok]
    assert timings[1].samples_us
    assert timings[1].max_rel_error == 0.0


def test_plans_are_judged_step_by_step_and_held_to_their_bits(
    bench: Workbench, plans: tuple[Graph, dict[str, Plan]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two additions, each of what it is given, whatever the outputs of the graph are said to be."""
    _, table = plans
    specs = (dense(N), dense(N))
    a, b = make_input(0, specs[0]), make_input(1, specs[1])
    first = make("add", [a, b])
    total = make("add", [first, b])
    one = graph_of(specs, first)
    meanings = Meanings((Meaning(one, (a, b), (first,)), Meaning(one, (first, b), (total,))), {0: total})
    other = graph_of(specs, make("mul", [total, total]), a, make("mul", [total, total]))
    assert bench.measure_plans(other, [table["right"]], seconds=0.0)[0].status is Status.wrong_result
    timing = bench.measure_by_steps(other, table["right"], meanings, seconds=0.05)
    assert timing.status is Status.ok, timing.detail
    assert timing.samples_us
    product = graph_of(specs, make("mul", [a, b]))
    faulty = Meanings((meanings.steps[0], Meaning(product, (first, b), (total,))), {0: total})
    timing = bench.measure_by_steps(other, table["right"], faulty, seconds=0.05)
    assert timing.status is Status.wrong_result
    assert timing.detail.startswith("step 1, "), timing.detail
    timing = bench.measure_by_steps(other, table["spins"], Meanings(meanings.steps[1:], {0: total}), seconds=0.05)
    assert timing.status is not Status.ok

    def others(
        plan: Plan, meanings: Meanings, inputs: Sequence[np.ndarray], run: object
    ) -> tuple[str, list[np.ndarray]]:
        problem, outputs = judge_steps(plan, meanings, inputs, bench.run)
        return problem, [np.nextafter(out, np.float32(np.inf), dtype=np.float32) for out in outputs]

    monkeypatch.setattr("codegen.workbench.workbench.judge_steps", others)
    timing = bench.measure_by_steps(other, table["right"], meanings, seconds=0.05)
    assert timing.status is Status.wrong_result, "not the bits that it was proved right with"


def test_checking_plans_is_part_of_their_time(
    bench: Workbench, plans: tuple[Graph, dict[str, Plan]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels have all of theirs for the race."""
    asked: list[tuple[float, float]] = []
    call = bench._timer.call  # pyright: ignore[reportPrivateUsage]

    def watched(request: dict[str, Any], **how: Any) -> Any:
        if request["job"] == "bench":
            asked.append((request["timing_seconds"], request["least_seconds"]))
        return call(request, **how)

    monkeypatch.setattr(bench._timer, "call", watched)  # pyright: ignore[reportPrivateUsage]
    graph, table = plans
    for seconds in (0.05, 1.0):
        bench.measure_plans(graph, [table["right"]], seconds=seconds)
    only(bench, SUM)
    assert asked == [(0.05, 0.05), (1.0, 0.5), (LIMITS.timing_seconds,) * 2]
    for timing, least, taken, left in [(5.0, 0.5, 1.5, 3.5), (5.0, 0.5, 9.0, 0.5), (0.8, 0.8, 9.0, 0.8)]:
        message = {"timing_seconds": timing, "least_seconds": least}
        assert race_seconds(message, time.monotonic() - taken) == pytest.approx(left, abs=0.1)


def test_plans_run_on_arrays_of_any_strides(bench: Workbench, plans: tuple[Graph, dict[str, Plan]]) -> None:
    _, table = plans
    rng = np.random.default_rng(0)
    a = rng.standard_normal(N).astype(np.float32)
    b = rng.standard_normal(2 * N).astype(np.float32)[::-2]
    out = bench.run(table["right"], [a, b])
    assert len(out) == 3
    np.testing.assert_array_equal(out[0], a + b + b)
    np.testing.assert_array_equal(out[1], a)
    np.testing.assert_array_equal(out[2], out[0])


def test_run_says_what_does_not_fit(bench: Workbench, plans: tuple[Graph, dict[str, Plan]]) -> None:
    _, table = plans
    a = np.zeros(N, np.float32)
    with pytest.raises(ValueError, match="expected 2 inputs, got 1"):
        bench.run(table["right"], [a])
    with pytest.raises(ValueError, match=r"input 1: expected f32\[1001\], got float32\[1000\]"):
        bench.run(table["right"], [a, a[1:]])
    with pytest.raises(ValueError, match=r"input 0: expected f32\[1001\], got bfloat16\[1001\]"):
        bench.run(table["right"], [a.astype(ml_dtypes.bfloat16), a])
    with pytest.raises(RunError, match="timed_out"):
        bench.run(table["spins"], [a, a])
    lost = table["right"].steps[0].model_copy(update={"binary": "0" * 64})
    with pytest.raises(MissingBinary):
        bench.run(table["right"].model_copy(update={"steps": (lost,)}), [a, a])


def test_compile_gives_rows_for_what_fails(bench: Workbench) -> None:
    good, bad = bench.compile([sum_kernel(N, "good"), sum_kernel(N, "bad", "no")])
    assert isinstance(good, Binary)
    assert isinstance(bad, Measurement)
    assert bad.status is Status.compile_failed
    assert bench.cache.get(good.source)


def test_results_do_not_depend_on_where_the_cache_lies(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative cache folder: children have another working directory."""
    monkeypatch.chdir(tmp_path)
    cache = ObjectCache(Path("cache"))
    compiler = find_compiler(bench.device, LIMITS, bare_headers(tmp_path / "include"))
    with Workbench(bench.device, cache, LIMITS, compiler=compiler) as other:
        (row,) = other.measure(sum_graph(8), "s", [sum_kernel(8, "k")])
    assert row.status is Status.ok, row.detail


@pytest.mark.turn("bad kernels")
def test_a_segment_that_cannot_be_interpreted_ends_as_such(tmp_path: Path) -> None:
    """The interpreter runs while compilers do: what happens to it there counts against the kernels, and no more."""
    spec = dense(1 << 27)
    graph = graph_of((spec,), make("exp", [make_input(0, spec)]))
    cache = ObjectCache(tmp_path / "cache")
    device = with_small_cache(detect("cpu", cache, ceilings=False))
    with Workbench(device, cache, Limits(memory_bytes=1 << 30)) as small:
        (row,) = small.measure(graph, "large", [sum_kernel(N, "k", SUM)])
        assert row.status is Status.out_of_memory, row.detail
        (row,) = small.measure(sum_graph(N), "small", [sum_kernel(N, "k", SUM)])
        assert row.status is Status.ok, row.detail


def test_races_say_how_long_the_next_one_will_take(bench: Workbench) -> None:
    with Workbench(bench.device, bench.cache, bench.limits) as new:
        assert new.race_seconds("s", 4) == 0.0, "nothing was measured yet"
        new.measure(sum_graph(N), "s", [sum_kernel(N, "k", SUM)])
        assert 0.0 < new.race_seconds("s", 1) <= new.race_seconds("s", 4)
        assert new.race_seconds("other", 4) == 0.0, "nobody knows"
        assert new.first_race_seconds(sum_graph(N), frozenset("s"), 4) >= new.race_seconds("s", 4), (
            "it has to be interpreted, too"
        )


def test_a_kernel_is_checked_once_however_often_it_races(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[int]] = []
    call = bench._timer.call  # pyright: ignore[reportPrivateUsage]

    def watched(message: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        if message["job"] == "bench":
            asked.append(message["passed"])
        return call(message, **more)

    monkeypatch.setattr(bench._timer, "call", watched)  # pyright: ignore[reportPrivateUsage]
    right, other, wrong = (sum_kernel(N, name, body) for name, body in (("r", SUM), ("o", SUM), ("w", "out[0] = 0;")))
    for kernels, passed in (
        ([right, wrong], []),
        ([wrong, right], [1]),
        ([other, right], [1]),
        ([right, other], [0, 1]),
    ):
        rows = bench.measure(sum_graph(N), "often", kernels)
        assert asked.pop() == passed
        assert [r.status for r in rows] == [Status.wrong_result if k is wrong else Status.ok for k in kernels]
        assert all(r.max_rel_error == 0.0 for r in rows if r.status is Status.ok)
    bench.measure(sum_graph(N), "often", [right], seed=1)
    assert asked.pop() == [], "other inputs"
    bench.measure(sum_graph(N), "another", [right])
    assert asked.pop() == [], "another segment"
