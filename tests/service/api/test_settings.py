"""Settings: which source wins, and what a wrong value is told."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from service.settings import TARGET_WORDS, Settings, SettingsError, config_path, describe, environment, load


def env(folder: Path, **variables: str) -> dict[str, str]:
    return {"HOME": str(folder), **variables}


def write(folder: Path, text: str) -> Path:
    path = folder / ".config" / "fuseplan" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def test_flag_over_environment_over_file_over_default(tmp_path: Path) -> None:
    write(tmp_path, "port = 1\nworkers = 2\ndefault_seconds = 5\n")
    variables = env(tmp_path, FUSEPLAN_PORT="3", FUSEPLAN_WORKERS="4")
    found = {s.name: (s.value, s.origin) for s in describe({"port": 6, "workers": None}, variables)}
    assert found["port"] == (6, "flag")
    assert found["workers"] == (4, "environment")
    assert found["default_seconds"] == (5.0, "file")
    assert found["host"] == ("127.0.0.1", "default")
    assert [s.name for s in describe({}, variables)] == [f.name for f in fields(Settings)]


def test_folders_follow_xdg(tmp_path: Path) -> None:
    plain = load({}, env(tmp_path))
    assert plain.db == f"sqlite:///{tmp_path}/.local/share/fuseplan/fuseplan.db"
    assert plain.cache == f"{tmp_path}/.cache/fuseplan"
    moved = env(tmp_path, XDG_DATA_HOME="/d", XDG_CACHE_HOME="/c", XDG_CONFIG_HOME="/f")
    assert (load({}, moved).db, load({}, moved).cache) == ("sqlite:////d/fuseplan/fuseplan.db", "/c/fuseplan")
    assert config_path(moved) == Path("/f/fuseplan/config.toml")
    assert config_path(env(tmp_path, XDG_CONFIG_HOME="relative")) == tmp_path / ".config/fuseplan/config.toml"
    assert config_path(env(tmp_path, FUSEPLAN_CONFIG="/x.toml")) == Path("/x.toml")


@pytest.mark.parametrize(
    ("flags", "variables", "text", "message"),
    [
        ({"port": 65536}, {}, "", "--port: expected a whole number from 0 to 65535, got 65536"),
        ({"port": True}, {}, "", "--port: expected a whole number, got True"),
        ({}, {"FUSEPLAN_PORT": "abc"}, "", "FUSEPLAN_PORT: expected a whole number, got 'abc'"),
        ({}, {"FUSEPLAN_MAX_SECONDS": "nan"}, "", "FUSEPLAN_MAX_SECONDS: expected a number from"),
        ({}, {"FUSEPLAN_LOG_LEVEL": "loud"}, "", "FUSEPLAN_LOG_LEVEL: expected one of debug"),
        ({}, {"FUSEPLAN_TARGET": "gpu"}, "", f"FUSEPLAN_TARGET: expected {TARGET_WORDS}, got 'gpu'"),
        ({}, {"FUSEPLAN_TARGET": ""}, "", f"FUSEPLAN_TARGET: expected {TARGET_WORDS}, got ''"),
        ({}, {"FUSEPLAN_TARGET": "cpu\n"}, "", f"FUSEPLAN_TARGET: expected {TARGET_WORDS}"),
        ({}, {"FUSEPLAN_ALLOWED_HOSTS": "*"}, "", "FUSEPLAN_ALLOWED_HOSTS: expected names or addresses without ports"),
        ({}, {"FUSEPLAN_ALLOWED_HOSTS": "service:80"}, "", "separated by commas, got 'service:80'"),
        ({}, {"FUSEPLAN_ALLOWED_HOSTS": "service, plans"}, "", "FUSEPLAN_ALLOWED_HOSTS: expected names"),
        ({}, {"FUSEPLAN_ALLOWED_HOSTS": "http://service"}, "", "FUSEPLAN_ALLOWED_HOSTS: expected names"),
        ({"target": "cuda:x"}, {}, "", f"--target: expected {TARGET_WORDS}, got 'cuda:x'"),
        ({}, {}, "target = 'cpu:0'", f"config.toml: target: expected {TARGET_WORDS}, got 'cpu:0'"),
        ({}, {}, "port = '1'", "config.toml: port: expected a whole number, got '1'"),
        ({}, {}, "prot = 1", "config.toml: there is no setting 'prot'"),
        ({}, {}, "port = ", "config.toml: "),
        ({"speed": 1}, {}, "", "flag: there is no setting 'speed'"),
        ({}, {"FUSEPLAN_CONFIG": "/nowhere/x.toml"}, "", "/nowhere/x.toml: the settings file does not exist"),
    ],
)
def test_wrong_values_name_the_setting_and_its_source(
    tmp_path: Path, flags: dict[str, Any], variables: dict[str, str], text: str, message: str
) -> None:
    if text:
        write(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load(flags, env(tmp_path, **variables))
    assert message in str(caught.value)


@pytest.mark.parametrize("target", ["cpu", "cuda", "cuda:0", "cuda:15", "h200", "rtx4090"])
def test_targets_that_are_taken(tmp_path: Path, target: str) -> None:
    assert load({}, env(tmp_path, FUSEPLAN_TARGET=target)).target == target


def test_a_child_process_gets_the_same_settings(tmp_path: Path) -> None:
    settings = load({"port": 0, "lease_seconds": 2.5, "db": "sqlite:////a b/x.db"}, env(tmp_path))
    assert load({}, env(tmp_path, **environment(settings))) == settings


def test_the_default_time_is_one_that_may_be_asked_for(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"default_seconds: expected at most max_seconds, 10 \(flag\), got 30"):
        load({"max_seconds": 10.0}, env(tmp_path))
    assert load({"max_seconds": 10.0, "default_seconds": 10.0}, env(tmp_path)).default_seconds == 10.0
