"""Settings: one table, read in one place. Flags win over FUSEPLAN_<NAME>, that over the TOML file, over defaults."""

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from codegen.hardware.gpus import TARGET_PATTERN as TARGET
from codegen.hardware.gpus import TARGET_WORDS as TARGET_WORDS

Origin = Literal["flag", "environment", "file", "default"]
ENVIRONMENT_PREFIX = "FUSEPLAN_"
_HOST_NAME = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])"
HOST_NAMES = rf"(?:{_HOST_NAME}(?:,{_HOST_NAME})*)?"
_SAMPLER = r"[A-Za-z_]\w*(?:[.:][A-Za-z_]\w*)*"
SAMPLERS = rf"{_SAMPLER}(?:,{_SAMPLER})*"
# No settings: where those are read from, and what clients, tests and benchmarks are told.
OTHER_VARIABLES = frozenset(
    f"FUSEPLAN_{name}"
    for name in "CONFIG COMMIT CORPUS FAULTY_TRIALS GPU_RESULTS GPU_SECONDS HEAVY_PRODUCTS KILLS KILLS_PAGE NEED_GPU "
    "RANDOM_GRAPHS SEARCHES SERVER_KEY TEST_OBJECTS TEST_SEED UNPACK_IMAGE".split()
)


class SettingsError(Exception):
    """A setting has a value that cannot be used; the message names it, where it came from, and what is expected."""


def _xdg(env: Mapping[str, str], variable: str, fallback: str) -> Path:
    """The folder `$variable/fuseplan`, or the XDG fallback below the home directory."""
    base = env.get(variable, "")
    root = Path(base) if base.startswith("/") else Path(env.get("HOME") or Path.home()) / fallback
    return root / "fuseplan"


def _default_db(env: Mapping[str, str]) -> str:
    return f"sqlite:///{_xdg(env, 'XDG_DATA_HOME', '.local/share') / 'fuseplan.db'}"


def _default_cache(env: Mapping[str, str]) -> str:
    return str(_xdg(env, "XDG_CACHE_HOME", ".cache"))


def _default_signing_key(env: Mapping[str, str]) -> str:
    return str(_xdg(env, "XDG_DATA_HOME", ".local/share") / "signing_key.pem")


def config_path(env: Mapping[str, str]) -> Path:
    """The TOML file that `load` reads: $FUSEPLAN_CONFIG, else $XDG_CONFIG_HOME/fuseplan/config.toml."""
    named = env.get(f"{ENVIRONMENT_PREFIX}CONFIG")
    return Path(named) if named else _xdg(env, "XDG_CONFIG_HOME", ".config") / "config.toml"


def _row(
    default: object,
    help_: str,
    low: float | None = None,
    high: float | None = None,
    *,
    choices: tuple[str, ...] = (),
    form: tuple[str, str] | None = None,
) -> Any:  # a dataclass field: every type of setting
    """A row of the table. `default` may be a function of the environment; `low` and `high` are both allowed values.

    form: a regular expression that the whole text matches, and the same in words.
    """
    return field(default=default, metadata={"help": help_, "low": low, "high": high, "choices": choices, "form": form})


@dataclass(frozen=True)
class Settings:
    """The table: name, type, default, help. Made by `load`."""

    host: str = _row("127.0.0.1", "Address to listen on: one of loopback, or, where `allowed_hosts` is set, any other.")
    allowed_hosts: str = _row(
        "",
        "Names, separated by commas, that requests may call the server by, besides those of loopback. There is no "
        "authentication: whoever reaches the server may do everything. Meant for containers, whose port their host "
        "publishes on loopback.",
        form=(HOST_NAMES, "names or addresses without ports, separated by commas"),
    )
    port: int = _row(8080, "TCP port to listen on; 0 takes a free one.", 0, 65535)
    db: str = _row(_default_db, "Database URL: sqlite:///PATH or a PostgreSQL URL.")
    db_seconds: float = _row(
        5.0, "Seconds that a request waits for the database; after them it is answered 503.", 0.1, 3600.0
    )
    cache: str = _row(_default_cache, "Folder for compiled objects and device facts. May be deleted at any time.")
    signing_key: str = _row(
        _default_signing_key,
        "File of the Ed25519 key that answers and bundles are signed with; made at the first start. Nobody else may be "
        "able to read it. `fuseplan key show` prints the public key.",
    )
    target: str = _row(
        "cpu",
        f"Target to plan for where a request names none: {TARGET_WORDS}.",
        form=(TARGET, TARGET_WORDS),
    )
    default_seconds: float = _row(30.0, "Seconds of search where a request names none.", 0.1, 86400.0)
    max_seconds: float = _row(3600.0, "Most seconds of search that a request may ask for.", 0.1, 86400.0)
    samplers: str = _row(
        "fuseplan,tpe,random",
        "Samplers, separated by commas, that requests may ask to steer their searches by; the first one steers those "
        "whose requests name none. A dotted path to a class of yours is a sampler, too.",
        form=(SAMPLERS, "names or dotted paths of samplers, separated by commas"),
    )
    max_wait_seconds: float = _row(60.0, "Most seconds that `Prefer: wait=N` holds a request open.", 0.0, 3600.0)
    max_body_bytes: int = _row(16_000_000, "Largest request body in bytes; more is answered 413 at once.", 1024, 2**31)
    max_held_bytes: int = _row(
        256_000_000, "Most bytes of bodies held at once, being sent or read; more are answered 429.", 1024, 2**40
    )
    max_queue: int = _row(
        1000, "Most operations waiting to run, those of batches aside; more are answered 429.", 1, 1_000_000
    )
    max_batch_bytes: int = _row(64_000_000, "Largest body of a batch in bytes; more is answered 413.", 1024, 2**31)
    max_batch_items: int = _row(10_000, "Most items in a batch.", 1, 1_000_000)
    max_batch_queue: int = _row(
        20_000, "Most operations of batches waiting to run; batches beyond are answered 429.", 1, 10_000_000
    )
    max_event_streams: int = _row(64, "Most streams of events open at once; more are answered 429.", 1, 10_000)
    workers: int = _row(
        1, "Worker processes. On one device they take turns at timing: more than one only compile side by side.", 0, 64
    )
    lease_seconds: float = _row(30.0, "A worker silent for this long loses its operation to another.", 2.0, 3600.0)
    memo_bytes: int = _row(
        64_000_000, "Memory for keys of request bodies that were read before, by their sha256.", 0, 2**40
    )
    layout_seconds: float = _row(10.0, "Time limit for laying out the graph on a plan's page.", 0.01, 300.0)
    log_level: str = _row("info", "Least severe messages to log.", choices=("debug", "info", "warning", "error"))

    @property
    def sampler_names(self) -> tuple[str, ...]:
        """Names of the samplers in `samplers`, in order."""
        return tuple(self.samplers.split(","))


@dataclass(frozen=True)
class Setting:
    """One setting as it is in force: for `fuseplan config show`, `--help` and the documentation."""

    name: str
    type: type
    value: Any
    origin: Origin
    help: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()


def load(flags: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None) -> Settings:
    """The settings in force. `flags`: values from the command line by name, None where absent. Raises SettingsError."""
    return Settings(**{s.name: s.value for s in describe(flags, env)})


def describe(flags: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None) -> list[Setting]:
    """Every row of the table with its value and where that comes from. Raises SettingsError."""
    env = os.environ if env is None else env
    given = {k: v for k, v in (flags or {}).items() if v is not None}
    path = config_path(env)
    file = _read_file(path, required=f"{ENVIRONMENT_PREFIX}CONFIG" in env)
    known = {f.name for f in fields(Settings)}
    variables = {name.removeprefix(ENVIRONMENT_PREFIX).lower(): name for name in env
                 if name.startswith(ENVIRONMENT_PREFIX) and name not in OTHER_VARIABLES}  # fmt: skip
    for origin, names in (("flag", given), ("environment", variables), (str(path), file)):
        for name in names:
            if name not in known:
                name = variables[name] if origin == "environment" else name
                raise SettingsError(f"{origin}: there is no setting {name!r}; there are {', '.join(sorted(known))}")
    settings: list[Setting] = []
    for row in fields(Settings):
        kind = row.type if isinstance(row.type, type) else {"str": str, "int": int, "float": float}[str(row.type)]
        variable = ENVIRONMENT_PREFIX + row.name.upper()
        if row.name in given:
            value, origin, where = given[row.name], "flag", "--" + row.name.replace("_", "-")
        elif variable in env:
            value, origin, where = env[variable], "environment", variable
        elif row.name in file:
            value, origin, where = file[row.name], "file", f"{path}: {row.name}"
        else:
            value, origin, where = row.default, "default", row.name
            assert value is not MISSING
            if isinstance(value, Callable):
                value = value(env)
        checked = _check(value, kind, row.metadata, where, is_text=origin == "environment")
        settings.append(Setting(row.name, kind, checked, origin, row.metadata["help"]))
    _check_seconds({s.name: s for s in settings})
    return settings


def _check_seconds(settings: Mapping[str, Setting]) -> None:
    """A request that names no time must not ask for more than one may."""
    usual, most = settings["default_seconds"], settings["max_seconds"]
    if usual.value > most.value:
        limit = f"at most max_seconds, {most.value:g} ({most.origin})"
        raise SettingsError(f"default_seconds: expected {limit}, got {usual.value:g} ({usual.origin})")


def _read_file(path: Path, required: bool) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if required:
            raise SettingsError(f"{path}: the settings file does not exist") from None
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from error


def _check(value: Any, kind: type, row: Mapping[str, Any], where: str, is_text: bool) -> Any:
    """`value` as a `kind` within its range. Raises SettingsError."""
    expected = {str: "text", int: "a whole number", float: "a number"}[kind]
    if is_text and kind is not str:
        try:
            value = kind(value)
        except ValueError:
            raise SettingsError(f"{where}: expected {expected}, got {value!r}") from None
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise SettingsError(f"{where}: expected {expected}, got {value!r}")
    low, high = row["low"], row["high"]
    if low is not None and not low <= value <= high:  # NaN fails too
        raise SettingsError(f"{where}: expected {expected} from {low:g} to {high:g}, got {value!r}")
    if row["choices"] and value not in row["choices"]:
        raise SettingsError(f"{where}: expected one of {', '.join(row['choices'])}, got {value!r}")
    if row["form"] and not re.fullmatch(row["form"][0], value):
        raise SettingsError(f"{where}: expected {row['form'][1]}, got {value!r}")
    return value


def environment(settings: Settings) -> dict[str, str]:
    """The variables that give a child process the same settings."""
    return {ENVIRONMENT_PREFIX + f.name.upper(): str(getattr(settings, f.name)) for f in fields(Settings)}
