"""Modules that commands load: a help text loads no library for making plans, a hit loads no module of searches or of
servers."""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from codegen.sandbox.object_cache import ObjectCache
from fusion_ir.formats import read
from scheduler.budget import Budget
from service.planning.planner import plan_graph
from tests.cpu.test_command_line import GRAPH
from tests.support.whole import WHOLE, in_turn
from tuning_db.store import Store

ROOT = Path(__file__).resolve().parents[2]
# Runs a command line, then tells on standard error what is loaded.
PROGRAM = """
import sys
sys.argv[0] = "fuseplan"
from service.__main__ import main
code = main()
print("LOADED", *sorted(sys.modules), file=sys.stderr)
sys.exit(code)
"""
OF_SERVERS = ("fastapi", "starlette", "uvicorn", "service.server", "httpx", "jinja2")
OF_SEARCHES = (
    "scheduler.tune",
    "scheduler.plan_selection",
    "codegen.families",
    "codegen.workbench.workbench",
    "optuna",
    "highspy",
)
OF_LOGS = ("structlog", "logging.config")
OF_OTHER_DATABASES = ("sqlalchemy.dialects.postgresql", "psycopg")
OF_FORMATS = (
    "fusion_ir.formats.nvfuser.reader",
    "fusion_ir.formats.kernel_math.reader",
    "fusion_ir.formats.migraphx.reader",
)
OF_PLANS = ("numpy", "sqlalchemy", "alembic", "pydantic", "rich", "codegen", "tuning_db", "fusion_ir.records")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "graph.txt").write_text(GRAPH)
    return tmp_path


@pytest.fixture(scope="module")
def planned_home(measured: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `home` with a measured plan of its graph, of a machine whose ceilings are known. Hits are counted in
    it, and no command of this module changes more."""
    folder = tmp_path_factory.mktemp("planned")
    shutil.copytree(measured, folder, dirs_exist_ok=True)
    (folder / "graph.txt").write_text(GRAPH)
    with Store(f"sqlite:///{folder / 'plans.db'}") as store:
        answer = plan_graph(read(GRAPH), "cpu", Budget(1.0), store, ObjectCache(folder / "cache", store.seal()))
    assert answer.state == "measured"
    return folder


def run(home: Path, *arguments: str, before: str = "") -> tuple[str, set[str]]:
    """Standard output of a command, and the modules loaded in its process. before: code to run first in the process."""
    names = {"HOME": str(home), "FUSEPLAN_DB": f"sqlite:///{home / 'plans.db'}", "FUSEPLAN_CACHE": str(home / "cache")}
    ended = subprocess.run(
        [sys.executable, "-c", before + PROGRAM, *arguments], capture_output=True, text=True, check=False,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", **names}, cwd=ROOT,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout, set(ended.stderr.partition("LOADED ")[2].split())


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["plans", "--help"], ["batch", "-h"], ["db", "-h"]])
def test_what_is_only_read_loads_no_library(home: Path, arguments: list[str]) -> None:
    out, loaded = run(home, *arguments)
    assert out.strip()
    allowed = {"pydantic"} if "plans" in arguments or "-h" in arguments else set()  # Typer's own, for groups
    assert loaded & {*OF_SERVERS, *OF_SEARCHES, *OF_PLANS} <= allowed


@pytest.mark.turn("what a hit loads")
@pytest.mark.soak
def test_a_hit_loads_nothing_of_searches_or_servers(planned_home: Path) -> None:
    home = planned_home
    graph = str(home / "graph.txt")
    assert all(map(find_spec, OF_SEARCHES)), "what a search loads has these names"
    others = {*OF_SERVERS, *OF_SEARCHES, *OF_LOGS, *OF_OTHER_DATABASES, "alembic", "scipy", "rich.progress"}
    out, loaded = run(home, "tune", graph, "--seconds", "1", "--json")
    assert '"cache": "hit"' in out
    assert loaded & {*others, *OF_FORMATS, "sqlalchemy", "asyncio"} == set()
    key = json.loads(out)["plan_key"]
    for arguments in in_turn((["plans", "list"], ["plans", "show", key], ["source", key]), 1):
        _, loaded = run(home, *arguments)
        assert loaded & {*others, *OF_FORMATS, "codegen.toolchain.cpu"} == set(), arguments
    for arguments in in_turn((["explain", key], ["trials", key], ["devices", "--target", "cpu"]), 1, "models"):
        _, loaded = run(home, *arguments)
        assert loaded & {*others, *OF_FORMATS} == set(), arguments
    if WHOLE:  # a search takes seconds
        _, loaded = run(home, "tune", graph, "--seconds", "1", "--continue", "--json")
        assert {"scheduler.tune", "codegen.workbench.workbench"} <= loaded, "this one searched"


@pytest.mark.turn("what a hit loads")
def test_a_hit_starts_no_process(planned_home: Path) -> None:
    home = planned_home
    graph = str(home / "graph.txt")
    no_process = "import subprocess\ndef start(*_, **__): raise AssertionError('started')\nsubprocess.Popen = start\n"
    for arguments in (["tune", graph, "--seconds", "0"], ["devices", "--target", "cpu"]):
        run(home, *arguments)  # which asks the compiler that is found on this path what it is, once
        run(home, *arguments, before=no_process)


@pytest.mark.turn("what a hit loads")
@pytest.mark.parametrize("to", ["text", "json"])
def test_another_format_takes_no_database(home: Path, to: str) -> None:
    out, loaded = run(home, "convert", str(home / "graph.txt"), "--to", to)
    assert out.strip()
    assert loaded & {*OF_SERVERS, *OF_SEARCHES, *OF_LOGS, *OF_FORMATS, "sqlalchemy", "tuning_db", "scheduler"} == set()


def test_a_reader_is_loaded_for_its_own_format_alone(home: Path) -> None:
    definition = ROOT / "examples" / "mistral_rope_forward.nvfuser.py"
    _, loaded = run(home, "convert", str(definition), "--to", "text")
    assert loaded & set(OF_FORMATS) == {"fusion_ir.formats.nvfuser.reader"}
