"""The pages: what they show, that every word from outside is escaped, that nothing in them is against the policy."""

import re
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fusion_ir.records import Alternative, Contraction, Cost, FamilyCost, Reason, Refusal
from service.dashboard import layout, routes
from tests.support.service_app import Running, running, wire
from tests.support.stored_plans import chain, plan_of, put_plan, store_plan
from tuning_db import Names

NASTY = "\"'><script>alert(1)</script>\n{{ 7*7 }}&amp;]]>"
VOID = {"meta", "link", "br", "input", "img", "hr", "wbr"}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Running]:
    routes.forget_pictures()
    with running(tmp_path) as started:
        yield started


class Page(HTMLParser):
    """Reads a page strictly: tags nest, ids differ, labels point at something, nothing is inline."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.headings: list[int] = []
        self.references: list[str] = []
        self.tables = self.captions = 0
        self.words: list[str] = []
        self.links: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))
        assert set(self.references) <= set(self.ids)
        assert self.headings[0] == 1
        assert self.headings.count(1) == 1
        assert all(b - a <= 1 for a, b in zip(self.headings, self.headings[1:], strict=False))
        assert self.tables == self.captions

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert "style" not in given, "the policy forbids inline style"
        assert not [name for name in given if name.startswith("on")], "the policy forbids inline script"
        assert tag != "style"
        assert tag != "script" or (given.get("src") or "").startswith("/static/")
        for name in ("src", "href"):
            value = given.get(name)
            if value is not None and tag != "a":
                assert value.startswith(("/static/", "#", "url(#")), value
        self.links += [given["href"] or ""] if tag == "a" and given.get("href") else []
        self.ids += [given["id"] or ""] if "id" in given else []
        self.references += (given.get("aria-labelledby") or "").split()
        self.references += [given["data-copy"] or ""] if "data-copy" in given else []
        self.tables += tag == "table"
        self.captions += tag == "caption"
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID and not self.rawdata[self.rawdata.index("<", self._at()) :].split(">")[0].endswith("/"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def _at(self) -> int:
        line, column = self.getpos()
        start = 0
        for _ in range(line - 1):
            start = self.rawdata.index("\n", start) + 1
        return start + column

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


def page(service: Running, path: str, status: int = 200) -> Page:
    response = service.client.get(path)
    assert response.status_code == status
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'self'")
    assert "unsafe" not in policy
    return Page(response.text)


def test_an_empty_list_says_what_to_do(service: Running) -> None:
    shown = page(service, "/")
    assert "No plans yet" in shown.text
    assert "fuseplan tune examples/mistral_rope_forward.nvfuser.py --server http://localhost" in shown.text


def test_the_list_shows_plans_and_the_queue(service: Running) -> None:
    plan_key = store_plan(service.store, chain(), Names(("query",), ("rotated",)))
    for _ in range(3):
        service.client.post("/v1/plans:resolve", json={"graph": wire()})
    service.store.flush_hits()
    service.client.post("/v1/plans:resolve", json={"graph": wire(9)})
    shown = page(service, "/")
    assert f"/plans/{plan_key}" in shown.links
    for words in ("query → rotated", "measured", "Test CPU", "12.5 µs", "8.00×", "80 %", "just now", "Waiting"):
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


def test_a_plans_page_holds_its_numbers_steps_source_reasons_and_picture(service: Running) -> None:
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
        "x → y", "12.5 µs", "8.00×", "80 %", "Unfused", "100 µs", "Copy floor", "11.0 µs", "Lower bound", "10.0 µs",
        "pointwise", "pointwise{lanes=8}", "in0 → out0", "exp, neg", "two kernels were faster", "1.50 s", "f32[4]",
        "int a = 0x10; // comment", "16 B", "GB/s", "out0",
    ):  # fmt: skip
        assert words in shown.text, words
    assert {"node-0", "node-1", "node-2", "source-0", "code-0"} <= set(shown.ids)
    assert "#node-1" in shown.links
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
        "steps 0 and 1: no family takes both",
        "matmul, aten",
        "takes one contraction",
        "~7.50 µs",
        "9.00 µs",
    ):
        assert words in shown.text, words


def test_the_gap_of_the_search_is_a_ratio_of_times(service: Running) -> None:
    shown = page(service, f"/plans/{store_plan(service.store, chain())}")
    assert "1.04× the time of the best cover" in shown.text


def test_nodes_have_the_colour_of_their_step(service: Running) -> None:
    html = service.client.get(f"/plans/{store_plan(service.store, chain())}").text
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
    for path in ("/", f"/plans/{plan_key}"):
        html = service.client.get(path).text
        assert "<script>alert" not in html
        assert "{{ 7*7 }}" in html
        assert "<script>alert(1)</script>" in page(service, path).text


def test_a_plan_that_is_gone_is_a_page_too(service: Running) -> None:
    for key in ("0" * 64, "nonsense", "%3Cscript%3E"):
        assert "There is no such page" in page(service, f"/plans/{key}", 404).text
    assert "no such type" in page(service, "/errors/none", 404).text


def test_without_graphviz_the_page_says_what_to_install(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.CompletedProcess([], layout.MISSING, b"", b"")

    monkeypatch.setattr(layout.subprocess, "run", run)
    shown = page(service, f"/plans/{store_plan(service.store, chain())}")
    assert "pip install 'fuseplan[dashboard]'" in shown.text
    assert "node-1" not in shown.ids


def test_a_layout_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    routes.forget_pictures()
    with running(tmp_path, layout_seconds=0.01) as service:
        shown = page(service, f"/plans/{store_plan(service.store, chain(2, ('exp',) * 1500))}")
        assert "took more than 0.01 s" in shown.text


def test_a_graph_that_is_not_stored_any_more_leaves_the_rest(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_key = store_plan(service.store, chain())
    monkeypatch.setattr(service.store, "graph", lambda _: None)
    shown = page(service, f"/plans/{plan_key}")
    assert "no longer stored" in shown.text
    assert "12.5 µs" in shown.text
    assert "12.5 µs" in page(service, "/").text


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
