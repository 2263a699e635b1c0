"""Pages rendered: the templates, and what several pages say in the same words."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from service.dashboard import list_view
from service.version import VERSION
from service.wording import formatting
from tuning_db.reading.graphs import StoredGraph


def _held_together(value: object) -> object:
    """A value that a template places, with numbers kept on the line of their units. HTML, and what is no text, stays as
    it is."""
    return formatting.unbroken(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


_templates = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_held_together,
    trim_blocks=True,
    lstrip_blocks=True,
)


def page(template: str, section: str, status: int = 200, **values: Any) -> Response:
    text = _templates.get_template(template).render(version=VERSION, section=section, **values)
    return HTMLResponse(text.encode("utf-8", "replace"), status, {"Cache-Control": "no-store"})


def missing(
    detail: str = "No plan with this key is stored. It may have been evicted: resolve its graph again.",
    section: str = "plans",
) -> Response:
    """The page, with status 404, that says in `detail` what is not there."""
    return page("missing.html", section, status=404, detail=detail)


def inputs_of(stored: StoredGraph | None) -> tuple[str, ...]:
    return stored.names.inputs if stored else ()


def outputs_of(stored: StoredGraph | None) -> tuple[str, ...]:
    return stored.names.outputs if stored else ()


def types_of(stored: StoredGraph | None) -> list[str]:
    """Types of a graph's inputs."""
    return list_view.input_types(stored.text) if stored else []
