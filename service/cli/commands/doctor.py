"""`fuseplan doctor`: what this installation can do, what it lacks, and what to install for it."""

import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Literal

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from codegen.devices.detection import DeviceError, detect
from codegen.devices.quarantine import DeviceQuarantined, Quarantines
from codegen.hardware.gpus import GPUS
from codegen.sandbox.object_cache import CacheError, ObjectCache
from codegen.toolchain.compiler import CompilerMissing
from codegen.toolchain.cpu import find_compiler
from codegen.toolchain.cuda import nvrtc_version
from service import disk
from service.cli.errors import FAILED
from service.cli.options import Cache, Db, Json
from service.cli.terminal import print_json, show
from service.settings import Settings, load
from service.version import VERSION
from service.wording.formatting import size
from tuning_db.errors import DatabaseError
from tuning_db.store import Store

Level = Literal["ok", "absent", "broken"]
_MARKS = {"ok": "[green]ok[/]", "absent": "[yellow]absent[/]", "broken": "[red]broken[/]"}


@dataclass(frozen=True)
class Finding:
    """One line: ok; absent, which costs a feature; or broken, without which nothing works."""

    what: str
    level: Level
    detail: str


def doctor(db: Db = None, cache: Cache = None, json: Json = False) -> None:
    """Check compiler, NVRTC, GPU, database, cache, quarantined devices and Graphviz, and say what to install.

    Exit code 1 if something is broken; what is merely absent costs a feature.
    """
    settings = load({"db": db, "cache": cache})
    findings = list(examine(settings))
    if json:
        print_json({"findings": [asdict(f) for f in findings]})
    else:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="bold")
        table.add_column("")
        table.add_column("part", no_wrap=True)
        table.add_column("", overflow="fold")
        for finding in findings:
            table.add_row(_MARKS[finding.level], finding.what, Text(finding.detail))
        show(table)
    if any(f.level == "broken" for f in findings):
        raise typer.Exit(FAILED)


def examine(settings: Settings) -> Iterator[Finding]:
    """All findings, in order."""
    yield Finding(
        "Fuseplan", "ok", f"{VERSION} on Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    )
    for what, check in _CHECKS.items():
        yield check(what, settings)


def _compiler(what: str, _: Settings) -> Finding:
    try:
        found = find_compiler()
    except CompilerMissing as error:
        return Finding(what, "broken", str(error))
    return Finding(what, "ok", f"{found.version} ({' '.join(found.command)})")


def _nvrtc(what: str, _: Settings) -> Finding:
    try:
        nvrtc = nvrtc_version()  # by the process that compiles
    except CompilerMissing as error:
        return Finding(what, "absent", f"CUDA code cannot be compiled: {error}")
    for name in ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12"):
        try:
            return Finding(what, "ok", f"{name} {version(name)}, CuPy {_cupy_version()}")
        except PackageNotFoundError:
            continue
    return Finding(what, "ok", f"{nvrtc} of a CUDA toolkit, CuPy {_cupy_version()}")


def _cupy_version() -> str:
    for name in ("cupy-cuda13x", "cupy-cuda12x", "cupy"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "of unknown version"


def _gpu(what: str, settings: Settings) -> Finding:
    try:
        device = detect("cuda", ObjectCache(settings.cache))
    except (DeviceError, CacheError) as error:
        return Finding(what, "absent", str(error))
    return Finding(what, "ok", f"{device.name} ({device.arch}), {size(device.memory_bytes)}, driver {device.driver}")


def _predictions(what: str, _: Settings) -> Finding:
    targets = ", ".join(GPUS)
    try:
        nvrtc_version()
    except CompilerMissing:
        return Finding(what, "absent", f"plans for {targets} cannot be predicted: their kernels take NVRTC, see above")
    return Finding(what, "ok", f"plans can be predicted for {targets} (--target)")


def _database(what: str, settings: Settings) -> Finding:
    try:
        with Store(settings.db) as store:
            return Finding(what, "ok", f"{store.place}, revision {store.revision()}")
    except DatabaseError as error:
        return Finding(what, "broken", str(error))


def _cache(what: str, settings: Settings) -> Finding:
    try:
        cache = ObjectCache(settings.cache)
        disk.check(settings)
    except CacheError as error:
        return Finding(what, "broken", str(error))
    return Finding(what, "ok", f"{cache.folder}, {size(cache.size_bytes())}")


def _quarantine(what: str, settings: Settings) -> Finding:
    try:
        facts = Quarantines(ObjectCache(settings.cache)).all()
    except CacheError as error:
        return Finding(what, "broken", str(error))
    if facts:
        return Finding(what, "broken", "\n".join(str(DeviceQuarantined(fact)) for fact in facts))
    return Finding(what, "ok", "none is out of service")


def _graphviz(what: str, _: Settings) -> Finding:
    missing = [name for name in ("jinja2", "pygraphviz") if find_spec(name) is None]
    if missing:
        return Finding(
            what, "absent", f"{' and '.join(missing)} missing, so there are no pages; pip install 'fuseplan[dashboard]'"
        )
    return Finding(what, "ok", f"pygraphviz {version('pygraphviz')}, Jinja2 {version('jinja2')}")


_CHECKS: dict[str, Callable[[str, Settings], Finding]] = {
    "C++ compiler": _compiler,
    "NVRTC": _nvrtc,
    "GPU": _gpu,
    "GPUs elsewhere": _predictions,
    "database": _database,
    "object cache": _cache,
    "quarantined devices": _quarantine,
    "dashboard": _graphviz,
}
