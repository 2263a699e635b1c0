"""Pages read strictly, for tests: tags nest, ids differ, labels point at something, nothing is against the policy."""

import re
from html.parser import HTMLParser

from tests.support.service_app import Running

VOID = {"meta", "link", "br", "input", "img", "hr", "wbr"}


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
        if tag not in VOID and not (self.get_starttag_text() or "").endswith("/>"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


def page(service: Running, path: str, status: int = 200) -> Page:
    """The page at a path of the application, with the policy that all pages have."""
    response = service.client.get(path)
    assert response.status_code == status
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'self'")
    assert "unsafe" not in policy
    return Page(response.text)
