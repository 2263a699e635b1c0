"""The pages: what they show, that every word from outside is escaped, that nothing in them is against the policy."""

import io
import re
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fusion_ir.records import (
    Alternative,
    Contraction,
    Cost,
    FamilyCost,
    Half,
    Measurement,
    Reason,
    Ref,
    Refusal,
    Status,
    Written,
)
from fusion_ir.text.printing import print_graph
from service.cli.plan_view import plan_view as terminal_view
from service.dashboard import layout, plan_pages, plan_view, routes, source_view
from service.dashboard.first_steps import EXAMPLE
from service.dashboard.reasons_view import UNTRIED
from service.wording.formatting import unbroken
from service.wording.how_far import how_far
from service.wording.naming import Naming
from service.wording.nodes import NodeWords
from tests.support.service_app import Running, running, wire
from tests.support.stored_plans import BINARY, DEVICE, chain, plan_of, put_plan, sha, store_alike, store_plan
from tests.support.strict_page import page
from tuning_db.reading.graphs import Names
from tuning_db.requests import RequestKey

NASTY = "\"'><script>alert(1)</script>\n{{ 7*7 }}&amp;]]>"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as started:
        yield started


def test_an_empty_list_says_what_to_do(service: Running) -> None:
    service.app.state.context.devices.detect("cpu")
    shown = page(service, "/")
    assert "No plans yet" in shown.text
    for words in (
        ".venv/bin/fuseplan tune examples/mistral_rope_forward.nvfuser.py --server http://localhost",
        "fuseplan tune GRAPH --server http://localhost",
        "curl -s http://localhost/v1/plans:resolve",
        "Test CPU (target cpu), which is ready",
    ):
        assert words in shown.text, words
    assert {"/openapi.json", "/errors", "/readyz"} <= set(shown.links)
    assert (Path(__file__).parents[3] / EXAMPLE).exists()
    sent = shown.text.partition(" -d '")[2].partition("'")[0]
    answer = service.client.post("/v1/plans:resolve", content=sent, headers={"Content-Type": "application/json"})
    assert answer.status_code == 202, "what curl would send"


def test_an_empty_list_says_what_the_device_is_at(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    devices = service.app.state.context.devices
    for state, said in (
        ("starting", "target cpu is starting"),
        ("no compiler", "no device for target cpu: no compiler"),
    ):
        monkeypatch.setattr(devices, "state", lambda _, state=state: state)
        assert said in page(service, "/").text


def test_the_list_shows_plans_and_the_queue(service: Running) -> None:
    plan_key = store_plan(service.store, chain(), Names(("query",), ("rotated",)))
    for _ in range(3):
        service.client.post("/v1/plans:resolve", json={"graph": wire()})
    service.store.plans.flush_hits()
    service.client.post("/v1/plans:resolve", json={"graph": wire(9)})
    shown = page(service, "/")
    assert f"/plans/{plan_key}" in shown.links
    for words in ("query f32[8] → rotated", "measured", "Test CPU", "12.5 µs", "8.00×", "80 %", "just now", "Waiting"):
        assert words in shown.text, words
    assert re.search(r"80 %\s+3\s+just now", shown.text)


def test_a_full_page_links_to_the_next(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "PAGE_ROWS", 2)
    keys = [store_plan(service.store, chain(n)) for n in range(1, 4)]
    first = page(service, "/")
    older = next(link for link in first.links if link.startswith("/?page_token="))
    second = page(service, older)
    assert f"/plans/{keys[0]}" in second.links
    assert f"/plans/{keys[0]}" not in first.links
    assert service.client.get("/?page_token=nonsense", follow_redirects=False).headers["location"] == "/"


def test_a_plans_page_holds_its_numbers_steps_source_and_reasons(service: Running) -> None:
    reason = Reason(kind="not_fused", nodes=(1, 2), text="two kernels were faster")
    plan_key = store_plan(
        service.store,
        chain(4, ("exp", "neg")),
        Names(("x",), ("y",)),
        "int a = 0x10; // comment\n\nfor (;;) {}\n",
        reasons=[reason],
    )
    shown = page(service, f"/plans/{plan_key}")
    for words in (
        "x f32[4] → y f32[4]",
        "x → y", "12.5 µs", "8.00×", "80 %", "One kernel per op", "100 µs", "Copying its bytes", "11.0 µs",
        "Lower bound", "10.0 µs", "pointwise", "lanes=8", "1 exp, 1 neg", "two kernels were faster", "searched 1.50 s",
        "f32[4]", "int a = 0x10; // comment", "16 B", "GB/s", "out0",
    ):  # fmt: skip
        assert words in shown.text, words
    assert {"graph", "source-0", "code-0"} <= set(shown.ids)
    assert "#graph" in shown.links
    assert f"/v1/plans/{plan_key}/source?step=0" in shown.links


def test_a_plans_page_says_what_families_refuse_and_cost(service: Running) -> None:
    graph, names = chain(4, ("exp", "neg")), Names(("x",), ("y",))
    refusal = Refusal(families=("matmul", "aten"), text="takes one contraction")
    cost = FamilyCost(family="gemv", schedule="gemv{rows=4}", cost=Cost(us=7.5, measured=False))
    plan = plan_of(
        graph, reasons=[Reason(kind="rejected", text="no family takes both", edges=((0, 1),), refusals=(refusal,))]
    )
    alternative = Alternative(nodes=(1, 2), costs=(cost,), refusals=(refusal,), apart=Cost(us=9.0, measured=True))
    plan = plan.model_copy(update={"contractions": (Contraction(nodes=(1,), alternatives=(alternative,)),)})
    shown = page(service, f"/plans/{put_plan(service.store, graph, names, plan)}")
    for words in (
        "kernels 0 and 1: no family takes both",
        "matmul, aten",
        "takes one contraction",
        "~7.50 µs",
        "9.00 µs",
    ):
        assert words in shown.text, words


def test_the_page_says_what_the_terminal_says(service: Running) -> None:
    """Names of tensors, the words of times, how far it is from the best, and the key that commands take."""
    graph, names = chain(4, ("exp", "neg")), Names(("query",), ("rotated",))
    plan = plan_of(graph)
    key = put_plan(service.store, graph, names, plan)
    text = page(service, f"/plans/{key}").text
    terminal = io.StringIO()
    Console(file=terminal, width=400).print(terminal_view(plan, "measured", Naming(names.inputs, names.outputs)))
    said = " ".join(terminal.getvalue().split())
    for words in (how_far(plan), f"Plan {key[:12]}", "query → rotated", "Test CPU", "1 kernel", "searched 1.50 s: "):
        assert words.lower() in text.lower(), words
        assert words in said, words
    for words in (
        "this plan",
        "one kernel per op",
        "copying its bytes",
        "lower bound",
        "kernel and schedule",
        "of bound",
    ):
        assert words in text.lower(), words
        assert words in said, words
    assert f"fuseplan explain {key[:12]}" in text


def test_each_kernel_has_its_part_of_the_whole(service: Running) -> None:
    graph = chain()
    one = plan_of(graph).steps[0]
    slow, fast = (one.model_copy(update={"time_us": time_us}) for time_us in (30.0, 10.0))
    plan = plan_of(graph).model_copy(update={"steps": (slow, fast)})
    assert [s.part.text for s in plan_view.plan_view(plan, NodeWords(graph), "measured", 0, {}.get).steps] == [
        "75 %",
        "25 %",
    ]
    guessed = slow.model_copy(update={"time_us": None, "predicted_us": 30.0})
    view = plan_view.plan_view(
        plan.model_copy(update={"steps": (guessed, fast)}), NodeWords(graph), "measured", 0, {}.get
    )
    assert [s.part.text for s in view.steps] == ["~75 %", "~25 %"]
    assert view.mixed
    key = put_plan(service.store, graph, None, plan.model_copy(update={"steps": (guessed, fast)}))
    assert "these kernels were not timed by themselves" in page(service, f"/plans/{key}").text


def test_why_kernels_are_apart_is_open_and_stands_before_the_picture(service: Running) -> None:
    reasons = [
        Reason(kind="rejected", text="no family takes both", edges=((0, 1),)),
        Reason(kind="cap", text="tried 9"),
    ]
    html = service.client.get(f"/plans/{store_plan(service.store, chain(), reasons=reasons)}").text
    assert re.search(r"<details open><summary>Refused by a kernel family", html)
    assert re.search(r"<details><summary>Limits that were hit", html)
    assert html.index("no family takes both") < html.index('id="graph"')
    many = [Reason(kind="rejected", text=f"refusal {i}") for i in range(4)]
    html = service.client.get(f"/plans/{store_plan(service.store, chain(9), reasons=many)}").text
    assert "<details><summary>Refused by a kernel family" in html, "each has a line for every family"


def test_where_there_is_no_room_for_columns_values_keep_their_names(service: Running) -> None:
    """Rows become cards on a narrow screen: each value then has the head of its column before it."""
    path = f"/plans/{store_plan(service.store, chain(), Names(('x',), ('y',)))}"
    for at, unnamed in (("/", 0), (path, 1)):  # the first cells say themselves what they are
        html = service.client.get(at).text
        table = re.search(r'<table class="[a-z ]*stacked".*?</table>', html, re.DOTALL)
        assert table, at
        heads = re.findall(r'<th scope="col"[^>]*>([^<]*)</th>', table[0])
        labels = [re.search(r'data-label="([^"]*)"', cell) for cell in re.findall(r"<td[^>]*>", table[0])]
        assert [found and found[1] for found in labels] == [None] * unnamed + heads[1 + unnamed :], at


def test_a_contraction_is_told_by_what_it_computes(service: Running) -> None:
    graph = chain(4, ("exp", "neg"))
    cost = FamilyCost(family="gemv", schedule="gemv{rows=4}", cost=Cost(us=7.5, measured=False), chosen=True)
    alternative = Alternative(nodes=(1,), costs=(cost,), refusals=(), apart=None)
    plan = plan_of(graph).model_copy(update={"contractions": (Contraction(nodes=(1,), alternatives=(alternative,)),)})
    text = page(service, f"/plans/{put_plan(service.store, graph, None, plan)}").text
    assert "%1 exp exp f32[4] in the plan: gemv, ~7.50 µs" in text


def test_what_was_tried_has_a_page(service: Running) -> None:
    graph = chain()
    plan = plan_of(graph)
    step = plan.steps[0]
    key = put_plan(service.store, graph, Names(("x",), ("y",)), plan)
    assert f"/plans/{key}/trials" in page(service, f"/plans/{key}").links
    assert "Nothing was timed" in page(service, f"/plans/{key}/trials").text
    one = Measurement(
        segment_key=step.segment_key, device_key=DEVICE.class_key, family=step.family, schedule=step.schedule,
        status=Status.ok, samples_us=(12.0, 12.5, 13.0),
    )  # fmt: skip
    slower = {"schedule": "pointwise{lanes=16}", "samples_us": (20.0, 20.0, 20.0)}
    wrong = {"schedule": "pointwise{lanes=32}", "samples_us": (), "detail": f"off by 3 {NASTY}"}
    rows = [one, one.model_copy(update=slower), one.model_copy(update=wrong | {"status": Status.wrong_result})]
    service.store.trials.record(rows)
    text = page(service, f"/plans/{key}/trials").text
    for words in (
        "3 candidates, 1 failed",
        "in the plan",
        "12.5 µs",
        "20.0 µs",
        "wrong_result: off by 3",
        "<script>alert(1)",
    ):
        assert words in text, words
    assert text.count("in the plan") == 1
    assert text.index("12.5 µs") < text.index("20.0 µs") < text.index("lanes=32")


def test_keys_can_be_copied_whole(service: Running) -> None:
    key = store_plan(service.store, chain())
    html = service.client.get(f"/plans/{key}").text
    for ident in ("short-key", "plan-key", "graph-key"):
        assert f'data-copy="{ident}"' in html
    assert re.search(rf'id="plan-key"><a href="/v1/plans/{key}"><code class="key">{key}</code></a></span>', html)


def test_nodes_have_the_colour_of_their_step(service: Running) -> None:
    html = service.client.get(f"/plans/{store_plan(service.store, chain())}/graph").text
    assert re.search(r'<g id="node-1" class="node compute seg-0" data-steps="0"', html)
    assert re.search(r'<g id="node-0" class="node input" data-steps=""', html)
    assert html.count('<path class="edge') == 3
    assert html.count('<svg class="graph"') == 1


def test_every_word_from_outside_is_escaped(service: Running) -> None:
    plan_key = store_plan(
        service.store,
        chain(),
        Names((NASTY,), (NASTY,)),
        source=f"// {NASTY}\n",
        reasons=[Reason(kind="note", text=NASTY)],
    )
    for path in ("/", f"/plans/{plan_key}", f"/plans/{plan_key}/graph", f"/plans/{plan_key}/sources/0"):
        html = service.client.get(path).text
        assert "<script>alert" not in html
        assert "{{ 7*7 }}" in html
        assert "<script>alert(1)</script>" in page(service, path).text
    assert "<script>alert" not in service.client.get(f"/plans/{plan_key}/text").text


def test_a_plan_that_is_gone_is_a_page_too(service: Running) -> None:
    for key in ("0" * 64, "nonsense", "%3Cscript%3E"):
        for part in ("", "/graph", "/text", "/steps", "/trials", "/sources/0"):
            assert "There is no such page" in page(service, f"/plans/{key}{part}", 404).text
    assert "no such type" in page(service, "/errors/none", 404).text


def test_without_graphviz_the_page_says_what_to_install(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.CompletedProcess([], layout.MISSING, b"", b"")

    monkeypatch.setattr(layout.subprocess, "run", run)
    path = f"/plans/{store_plan(service.store, chain())}"
    shown = page(service, f"{path}/graph")
    assert "pip install 'fuseplan[dashboard]'" in shown.text
    assert "node-1" not in shown.ids
    assert f"{path}/graph" in page(service, path).links, "installed, it is drawn the next time"


def test_a_layout_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    with running(tmp_path, layout_seconds=0.01) as service:
        path = f"/plans/{store_plan(service.store, chain(2, ('exp',) * 1500))}"
        assert f"{path}/graph" in page(service, path).links
        assert "took more than 0.01 s" in page(service, f"{path}/graph").text
        assert {f"{path}/text", f"{path}/steps"} <= set(page(service, f"{path}/graph").links), (
            "what can be read instead"
        )
        shown = page(service, path)
        assert "took more than 0.01 s" in shown.text, "known by now"
        assert f"{path}/graph" not in shown.links


def test_a_graph_that_is_not_stored_any_more_leaves_the_rest(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_key = store_plan(service.store, chain())
    monkeypatch.setattr(service.store.graphs, "graph", lambda _: None)
    shown = page(service, f"/plans/{plan_key}")
    assert "no longer stored" in shown.text
    for part in ("graph", "text"):
        assert "no longer stored" in page(service, f"/plans/{plan_key}/{part}", 404).text
    assert "void k()" in page(service, f"/plans/{plan_key}/sources/0").text
    assert "12.5 µs" in shown.text
    assert "12.5 µs" in page(service, "/").text


@pytest.mark.parametrize("part", ["", "/graph", "/text", "/steps", "/trials", "/sources/0"])
def test_the_beginning_of_a_key_leads_to_the_whole_one(service: Running, part: str) -> None:
    plan_key = store_plan(service.store, chain())
    there = service.client.get(f"/plans/{plan_key[:8]}{part}?a=b", follow_redirects=False)
    assert (there.status_code, there.headers["location"]) == (307, f"/plans/{plan_key}{part}?a=b")
    assert there.headers["cache-control"] == "no-store"
    assert service.client.get(f"/plans/{plan_key}{part}", follow_redirects=False).status_code == 200
    for key in ("0123", plan_key[:3], "%25%25%25%25"):
        assert "No plan with this key" in page(service, f"/plans/{key}{part}", 404).text
    beginning, keys = store_alike(service.store)
    several = page(service, f"/plans/{beginning}{part}", 404).text
    assert all(key[:12] in several for key in keys)


def test_static_files_are_served_with_their_types(service: Running) -> None:
    for name, type_ in (("style.css", "text/css"), ("page.js", "text/javascript"), ("mark.svg", "image/svg+xml")):
        response = service.client.get(f"/static/{name}")
        assert response.status_code == 200
        assert response.headers["content-type"].startswith(type_)
    assert service.client.get("/static/../routes.py").status_code == 404
    assert service.client.get("/static/%2e%2e/routes.py").status_code == 404


def test_error_pages(service: Running) -> None:
    assert "/errors/bad-graph" in page(service, "/errors").links
    assert "status 422" in page(service, "/errors/bad-graph").text


def test_a_large_plan_is_a_small_page(service: Running) -> None:
    """The page of a plan with 599 kernels and 1,200 ops holds the first steps and sources, and links to the rest."""
    graph, names = chain(4, ("exp", "neg") * 600), Names(("x",), ("y",))
    one = plan_of(graph).steps[0]
    sources = {sha(text): text for text in (f"int k{i};\n" * 300 for i in range(40))}
    steps = tuple(one.model_copy(update={"nodes": (i, i + 1), "source": list(sources)[i % 40]}) for i in range(1, 600))
    plan = plan_of(graph).model_copy(update={"steps": steps})
    service.store.graphs.put(plan.graph_key, print_graph(graph), names)
    request = RequestKey(plan.graph_key, DEVICE.class_key)
    key = service.store.plans.put(request, plan, "measured", {sha(BINARY): BINARY}, sources)
    html = service.client.get(f"/plans/{key}").text
    shown = page(service, f"/plans/{key}")
    assert len(html) < 300_000
    assert "%700 = " not in html, "the graph's text"
    assert 0 < shown.text.count("int k") <= source_view.SOURCE_LINES
    assert html.count("<tr data-step") == plan_view.MOST_STEPS
    assert html.count("<details") < 50
    for path in ("graph", "text", "steps", f"sources/{plan_view.MOST_STEPS - 1}"):
        assert f"/plans/{key}/{path}" in shown.links
    every = page(service, f"/plans/{key}/steps")
    assert f"/plans/{key}/sources/598" in every.links
    assert f"/plans/{key}#source-0" in every.links
    assert "%700 = " in page(service, f"/plans/{key}/text").text
    assert "int k39;" in page(service, f"/plans/{key}/sources/598").text
    assert "599 kernels" in page(service, f"/plans/{key}/sources/599", 404).text


def test_a_plan_of_many_tensors_and_kernels_is_a_small_page(service: Running) -> None:
    """A plan with 320 inputs, 320 outputs and 125 steps, as of 320 chains that have nothing in common."""
    graph = chain(4)
    one, tensor = plan_of(graph).steps[0], plan_of(graph).inputs[0]
    reads = tuple(Ref(place="in", index=i) for i in range(6))
    step = one.model_copy(update={"schedule": f"pointwise{{{','.join(f'parameter{i}=1024' for i in range(9))}}}"})
    step = step.model_copy(update={"reads": reads, "writes": reads})
    plan = plan_of(graph).model_copy(update={"inputs": (tensor,) * 320, "outputs": (tensor,) * 320})
    key = put_plan(service.store, graph, None, plan.model_copy(update={"steps": (step,) * 125}))
    html = service.client.get(f"/plans/{key}").text
    assert len(html) < 250_000
    assert html.count("and 220 more, in the plan's JSON") == 2
    assert html.count("<tr data-step") == plan_view.MOST_STEPS


def test_each_source_stands_on_the_page_once(service: Running) -> None:
    graph = chain()
    one = plan_of(graph).steps[0]
    key = put_plan(service.store, graph, None, plan_of(graph).model_copy(update={"steps": (one, one, one)}))
    html = service.client.get(f"/plans/{key}").text
    assert html.count("k() {}") == 1
    assert {f"/plans/{key}/sources/{i}" for i in (1, 2)} <= set(page(service, f"/plans/{key}").links)
    assert "k() {}" in page(service, f"/plans/{key}/sources/2").text.replace(" (", "(")


def test_pages_do_not_wait_for_pictures_that_are_being_drawn(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """While two pictures, as many as are drawn at a time, never end, other pages and finished pictures are served."""
    keys = [store_plan(service.store, chain(n)) for n in range(1, 6)]
    assert "node-1" in page(service, f"/plans/{keys[0]}/graph").ids
    begun, may_end = threading.Semaphore(0), threading.Event()
    usual = plan_pages.layout

    def stuck(*args: Any) -> layout.Layout:
        begun.release()
        assert may_end.wait(60)
        return usual(*args)

    monkeypatch.setattr(plan_pages, "layout", stuck)
    with ThreadPoolExecutor(4) as readers:
        drawn = [readers.submit(page, service, f"/plans/{key}/graph") for key in keys[1:]]
        try:
            assert begun.acquire(timeout=30)
            assert begun.acquire(timeout=30)
            assert "12.5 µs" in page(service, f"/plans/{keys[1]}").text
            assert "node-1" in page(service, f"/plans/{keys[0]}/graph").ids
            assert not begun.acquire(blocking=False), "a third one is being drawn"
        finally:
            may_end.set()
        assert all("node-1" in found.result().ids for found in drawn)


def test_the_picture_says_what_its_boxes_are(service: Running) -> None:
    graph = chain(4, ("exp", "neg", "exp"))
    one = plan_of(graph).steps[0]
    steps = tuple(one.model_copy(update={"nodes": nodes}) for nodes in ((1,), (1, 2)))
    key = put_plan(service.store, graph, None, plan_of(graph).model_copy(update={"steps": steps}))
    text = page(service, f"/plans/{key}/graph").text
    assert "computed by each of these kernels for itself (1)" in text
    assert "computed by no kernel: rewrites put something else in its place, or its value is there already (1)" in text
    plain = page(service, f"/plans/{store_plan(service.store, chain(9))}/graph").text
    assert "computed by" not in plain.replace("the kernel that computes", "")


def test_nodes_are_called_by_their_names_everywhere(service: Running) -> None:
    """x -> l3_a = exp -> ln = neg -> lin = tanh; ln is a temporary, lin is summed in two halves."""
    graph = chain(4, ("exp", "neg", "tanh"))
    one, tmp = plan_of(graph).steps[0], Ref(place="tmp", index=0)
    first = one.model_copy(update={"nodes": (1, 2), "writes": (tmp,), "written": (Written(nodes=(2,), whole=True),)})
    half = Half(node=3, half="second", parts=4, terms=16, rest=0)
    second = one.model_copy(update={"nodes": (3,), "reads": (tmp,), "halves": (half,)})
    alternatives = (
        Alternative(nodes=(3,), costs=(), refusals=(), apart=None),
        Alternative(nodes=(2, 3), costs=(
            FamilyCost(family="gemv", schedule="gemv{rows=4}", cost=Cost(us=7.5, measured=False), chosen=True),
        ), refusals=(), apart=Cost(us=9.0, measured=True)),
    )  # fmt: skip
    plan = plan_of(graph, reasons=[Reason(kind="not_fused", nodes=(2, 3), text="two were faster")]).model_copy(
        update={
            "steps": (first, second),
            "contractions": (Contraction(nodes=(3,), alternatives=alternatives),),
        }
    )
    key = put_plan(service.store, graph, Names(("x",), ("y",), ("", "l3_a", "ln", "lin")), plan)
    text = page(service, f"/plans/{key}").text
    assert "x → ln" in text
    assert "ln → y" in text
    assert "tmp0" not in text
    assert "two were faster ln neg, lin tanh" in text
    assert "the second half of lin tanh, of which 64 terms each were cut into 4 × 16" in text
    assert "lin tanh tanh f32[4] in the plan: gemv, ~7.50 µs" in text
    assert "with ln neg" in text
    assert "%2 ln = neg(%1): f32[4]" in text
    assert "%3 lin = tanh(%2): f32[4]" in page(service, f"/plans/{key}/text").text
    drawn = service.client.get(f"/plans/{key}/graph").text
    assert ">ln</text>" in drawn
    assert ">neg f32[4]</text>" in drawn
    assert "%3 lin = tanh(ln): f32[4]" in drawn


def test_pages_show_names_of_nodes_escaped(service: Running) -> None:
    graph = chain(4, ("exp", "neg"))
    plan = plan_of(graph, reasons=[Reason(kind="not_fused", nodes=(1, 2), text="two were faster")])
    key = put_plan(service.store, graph, Names(("x",), ("y",), ("", NASTY, "b")), plan)
    for part in ("", "/graph", "/text"):
        assert "<script>alert" not in service.client.get(f"/plans/{key}{part}").text
        assert "script>al" in page(service, f"/plans/{key}{part}").text


def test_get_endpoints_answer_head(service: Running) -> None:
    key = store_plan(service.store, chain())
    for path in ("/", f"/plans/{key}", f"/v1/plans/{key}", "/livez", "/errors", "/static/style.css", "/openapi.json"):
        got, head = service.client.get(path), service.client.head(path)
        assert (head.status_code, head.content) == (200, b""), path
        assert head.headers["content-type"] == got.headers["content-type"]
        assert head.headers["content-security-policy"]
    assert service.client.head("/plans/0123").status_code == 404
    assert service.client.head("/v1/plans:resolve").status_code == 405


def test_a_plan_without_kernels_does_not_claim_to_be_timed(service: Running) -> None:
    graph = chain()
    plan = plan_of(graph).model_copy(update={"steps": (), "time_us": None, "spread": None})
    key = put_plan(service.store, graph, None, plan)
    for text in (page(service, f"/plans/{key}").text, service.client.get("/").text):
        assert "timed on this device" not in text
        assert "Nothing runs: every output is an input as it is." in text
    assert "not timed as a whole" not in page(service, f"/plans/{key}").text


def test_when_a_plan_was_made_is_a_date(service: Running) -> None:
    key = store_plan(service.store, chain())
    for path in ("/", f"/plans/{key}"):
        assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", page(service, path).text), path


def test_no_line_breaks_within_a_number_and_its_unit_or_a_name(service: Running) -> None:
    assert unbroken("± 5 %: 12.5 µs, 3 of 4.00 KiB, 8.1 GB/s") == (
        "±\u00a05\u00a0%: 12.5\u00a0µs, 3 of 4.00\u00a0KiB, 8.1\u00a0GB/s"
    )
    key = store_plan(service.store, chain(), source="for (x = 1 % 3; 5 s;) {}\n")
    html = service.client.get(f"/plans/{key}").text
    assert "12.5\u00a0µs" in html
    assert "12.5 µs" not in html
    assert "±\u00a01.0\u00a0%" in html
    assert "\u00a0" not in html[html.index('id="code-0"') :].partition("</ol>")[0], "what is copied stays as it is"
    style = service.client.get("/static/style.css").text
    for rule in (".ops", ".name", ".schedule", ".names"):
        [found] = re.findall(rf"^ *{re.escape(rule)} {{([^}}]*overflow-wrap[^}}]*)}}", style, re.MULTILINE)
        assert "overflow-wrap: break-word" in found, rule


def test_pairs_that_were_not_tried_are_the_first_thing_to_read(service: Running) -> None:
    pairs = [
        Reason(
            kind="cap",
            text=f"together {us} µs; not tried before the time was over",
            edges=((us, us + 1),),
            together=Cost(us=float(us), measured=False),
            apart=Cost(us=30.0, measured=True),
        )
        for us in range(25, 2, -1)
    ]
    reasons = [Reason(kind="not_fused", text="slower", edges=((0, 1),)), Reason(kind="cap", text="tried 9"), *pairs]
    key = store_plan(service.store, chain(), reasons=reasons)
    html = service.client.get(f"/plans/{key}").text
    assert f'<details open><summary>{UNTRIED} <span class="count">{len(pairs)}</span>' in html
    assert '<details><summary>Limits that were hit <span class="count">1</span>' in html
    text = page(service, f"/plans/{key}").text
    assert text.index("together 3 µs; not tried") < text.index("together 4 µs") < text.index("Why not fused")


@pytest.mark.parametrize("address", ["/plan", "/docs", "/index.html", "/static/none.css", "/errors/a/b"])
def test_an_address_that_is_none_is_a_page_for_a_browser_and_a_problem_for_others(
    service: Running, address: str
) -> None:
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    shown = service.client.get(address, headers=browser)
    assert (shown.status_code, shown.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "There is no such page" in shown.text
    assert "There is no endpoint at this address." in shown.text
    for headers in ({"Accept": "*/*"}, {"Accept": "application/json"}):
        told = service.client.get(address, headers=headers)
        assert (told.status_code, told.json()["type"]) == (404, "/errors/not-found")
    api = service.client.get("/v1/nothing", headers=browser)
    assert api.json()["type"] == "/errors/not-found", "the API has one shape of errors, whoever asks"


def test_browsers_get_the_mark_where_they_look_for_it_unasked(service: Running) -> None:
    found = service.client.get("/favicon.ico")
    assert (found.status_code, found.headers["content-type"]) == (200, "image/svg+xml")
    assert found.content == (Path(routes.__file__).parent / "static" / "mark.svg").read_bytes()
