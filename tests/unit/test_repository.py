"""The repository itself: what is public is documented, what is listed exists, nothing in it belongs to one machine."""

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("fusion_ir", "codegen", "scheduler", "tuning_db", "service")
CLIENT = "fuseplan_client"  # a distribution of its own: shares the published plans with the rest, not code
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@lru_cache
def tracked() -> list[Path]:
    """The files of the repository: those that git tracks or would."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode:  # an unpacked archive
        return [p for p in ROOT.rglob("*") if p.is_file() and not any(part.startswith(".venv") for part in p.parts)]
    return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


@lru_cache
def texts() -> list[tuple[Path, str]]:
    """The files that are text, by their paths from the root."""
    found: list[tuple[Path, str]] = []
    for path in tracked():
        try:
            found.append((path.relative_to(ROOT), path.read_text("utf-8")))
        except UnicodeDecodeError:
            continue
    return found


class Import(NamedTuple):
    """A module that a line imports. relative: from the importing file's own package. function: the innermost that the
    line is in, if any."""

    line: int
    module: str
    relative: bool
    function: str


class Module(NamedTuple):
    """Facts of a source that tests below ask for: it is parsed once for all of them."""

    path: Path
    described: bool
    imports: tuple[Import, ...]


@lru_cache
def modules(*packages: str) -> list[Module]:
    """The sources of these top-level folders."""
    return [parsed(path, text) for path, text in sorted(texts()) if path.suffix == ".py" and path.parts[0] in packages]


def parsed(path: Path, text: str) -> Module:
    tree = ast.parse(text)
    return Module(path, not tree.body or bool(ast.get_docstring(tree)), tuple(imports_of(tree, "")))


def imports_of(node: ast.AST, function: str) -> Iterator[Import]:
    """The imports at a node and below it."""
    if isinstance(node, ast.ImportFrom):
        yield Import(node.lineno, node.module or "", bool(node.level), function)
    elif isinstance(node, ast.Import):
        yield from (Import(node.lineno, alias.name, False, function) for alias in node.names)
    elif not isinstance(node, ast.expr):  # which holds no statement
        inside = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        for child in ast.iter_child_nodes(node):
            yield from imports_of(child, inside)


def test_no_file_names_a_package_index_or_a_machine() -> None:
    # Put together here, so that this file does not name them itself.
    hosts = [
        ".".join(parts)
        for parts in (("pypi", "org"), ("pythonhosted", "org"), ("download", "pytorch", "org"), ("anaconda", "org"))
    ]
    folders = [
        "/" + "/".join(parts)
        for parts in (("work", "main"), ("work", "shared"), ("root", ""), ("opt", "pypi"), ("home", "user"))
    ]
    faults = [f"{path}: {word}" for path, text in texts() for word in (*hosts, *folders) if word in text]
    assert not faults


def test_no_text_is_left_unfinished() -> None:
    words = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3)) + r")\b|raise " + "NotImplementedError")
    faults = [
        f"{path}:{n}"
        for path, text in texts()
        if path.suffix in {".py", ".h", ".cuh", ".cpp", ".js"}
        for n, line in enumerate(text.split("\n"), 1)
        if words.search(line)
    ]
    assert not faults


def test_every_module_says_what_it_is() -> None:
    assert [str(m.path) for m in modules(*PACKAGES) if not m.described] == []


# Loaded when it is needed: most commands and every hit do without.
LATER = {
    "codegen/child/cpu_bench.py": {"codegen.timing.surroundings"},
    "scheduler/tuning/proposals.py": {"scheduler.tuning.samplers", "scheduler.tuning.study"},
    "service/cli/app.py": {"service.version", "service.cli.terminal"},
    "service/cli/commands/source.py": {"codegen.standalone"},
    "service/cli/commands/trials_export.py": {"scheduler.tuning.study_export"},
    "service/cli/commands/tune.py": {"service.cli.server_client", "service.cli.tune_many", "tuning_db.store"},
    "service/cli/graph_argument.py": {"fusion_ir.formats.side_json"},
    "service/planning/planner.py": {"service.planning.search"},
    "tuning_db/schema.py": {"tuning_db.upgrading"},
}


def test_no_import_between_our_packages_inside_a_function() -> None:
    faults = [
        f"{m.path}:{i.line} imports {i.module} inside {i.function}"
        for m in modules(*PACKAGES)
        for i in m.imports
        if i.function and i.module.split(".")[0] in PACKAGES and i.module not in LATER.get(str(m.path), ())
    ]
    assert faults == []


@lru_cache
def pages() -> dict[str, Callable[[], str]]:
    """The generator of the reference pages: a script, not a package."""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PAGES


PRINTED = ["../ARCHITECTURE.md", "command_line.md", "errors.md", "families.md", "ops.md", "rewrites.md", "settings.md"]


@pytest.mark.parametrize("name", PRINTED)
def test_printed_page_says_what_the_program_does(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == pages()[name](), "run `make docs`"


def test_every_page_is_linked_and_every_printed_one_compared() -> None:
    readme = (ROOT / "README.md").read_text()
    links = [f"docs/{p.name}" for p in sorted((ROOT / "docs").glob("*.md"))]
    links += ["ARCHITECTURE.md", "CONTRIBUTING.md", "docker/README.md"]
    assert [link for link in links if f"]({link})" not in readme] == []
    assert sorted(PRINTED) == sorted(pages())


@pytest.mark.parametrize("page", ["README.md", "docs/measured.md"])
def test_figures_stand_a_row_a_fact_and_no_cell_is_longer_than_a_line(page: str) -> None:
    rows = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("|")]
    cells = [re.sub(r"\]\([^)]*\)", "]", cell.strip()) for row in rows for cell in row.strip("|").split("|")]
    assert rows
    assert [cell for cell in cells if len(cell) > 110] == []


def test_links_between_pages_lead_somewhere() -> None:
    code = re.compile(r"^```.*?^```|^    .*?$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
    lost = [
        f"{path}: {link}"
        for path, text in texts()
        if path.suffix == ".md" and path.parts[0] != "tests"
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", code.sub("", text))
        if not (ROOT / path.parent / link).exists()
    ]
    assert lost == []


def test_nothing_public_is_without_a_description() -> None:
    from codegen.families import FAMILIES
    from fusion_ir.ops import OPS
    from service.cli.app import commands
    from service.settings import describe

    assert [name for name, row in OPS.items() if not row.doc.strip()] == []
    assert [name for name in FAMILIES if not name.isidentifier()] == []
    assert [name for name, help_ in commands().items() if not help_] == []
    assert [s.name for s in describe(env={"HOME": "/"}) if not s.help] == []


def test_every_make_target_is_listed_by_help() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony
    undocumented = [
        name
        for name in phony[1].split()
        if name != "compiler" and not re.search(rf"^{name}:.*## ", makefile, re.MULTILINE)
    ]
    assert undocumented == []


def test_client_and_server_share_no_code() -> None:
    sides = ((modules("client"), PACKAGES), (modules(*PACKAGES), (CLIENT,)))
    faults = [
        f"{m.path}:{i.line}: {i.module}"
        for own, theirs in sides
        for m in own
        for i in m.imports
        if i.module.split(".")[0] in theirs
    ]
    assert faults == []


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements() -> dict[str, list[str]]:
    """Normal names of the distributions that the project and each extra ask for."""
    project = PROJECT["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    return {group: [normal(re.split(r"[\[<>=! ]", item)[0]) for item in items] for group, items in groups.items()}


def test_every_requirement_has_an_exact_pin() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*", line) for line in lines)
    pinned = [normal(line.split("==")[0]) for line in lines]
    assert len(pinned) == len(set(pinned))
    assert [name for names in requirements().values() for name in names if name not in pinned] == []


# Import names that differ from their distribution's.
DISTRIBUTION = {"cupy": "cupy-cuda13x", "nvidia": "nvidia-cuda-nvrtc"}
# Imported where they are needed, with an error that names the extra.
OPTIONAL = {"cupy", "jinja2", "mpmath", "nvidia", "psycopg", "pygraphviz", "ziglang"}


def test_every_import_is_a_declared_dependency() -> None:
    declared = set(requirements()[""])
    faults: list[str] = []
    for module in modules(*PACKAGES):
        for line, imported, relative, _ in module.imports:
            name = imported.split(".")[0]
            known = relative or name in sys.stdlib_module_names or name in PACKAGES or name in OPTIONAL
            if not known and normal(DISTRIBUTION.get(name, name)) not in declared:
                faults.append(f"{module.path}:{line}: {name}")
    assert faults == []


def test_lowest_versions_are_those_of_the_project() -> None:
    """`.ci/run` and `make soak` try them."""
    printed = subprocess.run([sys.executable, ROOT / ".ci" / "lowest"], capture_output=True, text=True, check=True)
    assert printed.stdout == (ROOT / "lowest.txt").read_text(), "run .ci/lowest > lowest.txt"
    named = {normal(line.split("==")[0]) for line in printed.stdout.splitlines()}
    wanted = requirements()
    assert named == {*wanted[""], *wanted["dashboard"], *wanted["postgres"]}
