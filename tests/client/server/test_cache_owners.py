"""A cache in the hands of others: folders, files, links and pipes that code is never loaded from."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fuseplan_client.server import PlanClient, ServerAbsent, ownership

from testing.plan_server import BINARY, PlanServer, answer, http, patient, plan_server, sha

QUICK = patient(attempts=2)
REQUEST = {"graph_key": "0" * 64}


@pytest.fixture
def server() -> Iterator[PlanServer]:
    """A server that has one plan and its binary."""
    with plan_server(lambda a: (http(answer() if a.method == "POST" else BINARY),)) as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def kept_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file())


def stop(server: PlanServer) -> None:
    """From now on the server closes every connection without an answer."""
    server.respond = lambda asked: ()


OTHERS = 0o777, 0o757, 0o702, 0o1777, 0o770, 0o720


@pytest.mark.parametrize("which", [".", "answers", "binaries"])
@pytest.mark.parametrize("mode", OTHERS)
def test_a_folder_that_others_can_write_to_is_neither_read_nor_written(
    server: PlanServer, folder: Path, monkeypatch: pytest.MonkeyPatch, mode: int, which: str
) -> None:
    monkeypatch.setattr(ownership, "_is_group_of_one", lambda gid: False)
    client = PlanClient(server.url, limits=QUICK, cache=folder)
    client.resolve(REQUEST)
    client.binary(sha(BINARY))
    (folder / which).chmod(mode)
    before = {p: p.stat().st_mtime_ns for p in kept_files(folder)}
    other = PlanClient(server.url, limits=QUICK, cache=folder)
    other.resolve(REQUEST)
    asked = len(server.asked)
    other.binary(sha(BINARY))
    if which != "answers":
        assert len(server.asked) == asked + 1
    if which == ".":
        assert {p: p.stat().st_mtime_ns for p in kept_files(folder)} == before
    assert any(f"others can write to {folder / which}".removesuffix("/.") in text for text in other.problems)
    stop(server)
    if which != "binaries":
        with pytest.raises(ServerAbsent):
            other.resolve(REQUEST)


@pytest.mark.parametrize("mode", [0o666, 0o602, 0o620])
def test_a_file_that_others_can_write_to_is_not_read(
    server: PlanServer, folder: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    monkeypatch.setattr(ownership, "_is_group_of_one", lambda gid: False)
    client = PlanClient(server.url, limits=QUICK, cache=folder)
    client.binary(sha(BINARY))
    (folder / "binaries" / sha(BINARY)).chmod(mode)
    client.binary(sha(BINARY))
    assert len(server.asked) == 2
    assert any("others can write to" in text for text in client.problems)


def test_a_folder_of_another_owner_is_not_used(
    server: PlanServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    PlanClient(server.url, limits=QUICK, cache=folder).binary(sha(BINARY))
    monkeypatch.setattr(ownership, "SYSTEM", -1)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    client = PlanClient(server.url, limits=QUICK, cache=folder)
    assert client.binary(sha(BINARY)) == BINARY
    assert len(server.asked) == 2
    assert any("belongs to user" in text and "we are user 12345" in text for text in client.problems)


def test_a_folder_below_one_that_everybody_may_rename_in_is_not_used(server: PlanServer, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    folder = tmp_path / "open" / "cache"
    PlanClient(server.url, limits=QUICK, cache=folder).binary(sha(BINARY))
    (tmp_path / "open").chmod(0o777)
    client = PlanClient(server.url, limits=QUICK, cache=folder)
    client.binary(sha(BINARY))
    assert len(server.asked) == 2
    assert any("can be written by everybody" in text for text in client.problems)
    (tmp_path / "open").chmod(0o1777)  # as /tmp: owners alone rename
    client.binary(sha(BINARY))
    assert len(server.asked) == 2


def test_links_and_pipes_in_place_of_entries_are_not_followed(server: PlanServer, folder: Path, tmp_path: Path) -> None:
    client = PlanClient(server.url, limits=QUICK, cache=folder)
    client.binary(sha(BINARY))
    entry = folder / "binaries" / sha(BINARY)
    (tmp_path / "elsewhere").write_bytes(BINARY)
    for plant in (lambda: entry.symlink_to(tmp_path / "elsewhere"), lambda: os.mkfifo(entry), entry.mkdir):
        entry.unlink()
        plant()
        before = len(server.asked)
        assert client.binary(sha(BINARY)) == BINARY
        assert len(server.asked) == before + 1
        if entry.is_dir():
            break
    assert (tmp_path / "elsewhere").read_bytes() == BINARY


def test_what_is_made_is_for_its_owner_alone(server: PlanServer, folder: Path) -> None:
    before = os.umask(0)
    try:
        client = PlanClient(server.url, limits=QUICK, cache=folder)
        client.resolve(REQUEST)
        client.binary(sha(BINARY))
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    for path in folder.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
