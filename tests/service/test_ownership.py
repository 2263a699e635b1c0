"""Folders and files that others own or can write are refused, by the object cache and by the database."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from codegen.sandbox.object_cache import CacheError, ObjectCache
from fusion_ir import ownership
from tuning_db.errors import DatabaseError
from tuning_db.store import Store


def open_cache(folder: Path) -> None:
    ObjectCache(folder)


def open_database(folder: Path) -> None:
    Store(f"sqlite:///{folder}/plans.db").close()


WHO = pytest.mark.parametrize("open_", [open_cache, open_database])
Open = Callable[[Path], None]


@WHO
def test_what_we_make_is_ours_alone(tmp_path: Path, open_: Open) -> None:
    before = os.umask(0)
    try:
        (tmp_path / "new").mkdir(mode=0o755)
        open_(tmp_path / "new" / "folder")
    finally:
        os.umask(before)
    assert (tmp_path / "new" / "folder").stat().st_mode & 0o777 == 0o700
    open_(tmp_path / "new" / "folder")


@WHO
@pytest.mark.parametrize("mode", [0o777, 0o757, 0o702, 0o1777, 0o770, 0o720])
def test_a_folder_that_others_can_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_: Open, mode: int
) -> None:
    monkeypatch.setattr(ownership, "_is_own_group", lambda gid: False)
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises((CacheError, DatabaseError), match=rf"can be written by others \(mode {mode:04o}\)"):
        open_(folder)
    folder.chmod(0o755)
    open_(folder)


@WHO
def test_a_folder_of_another_owner_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_: Open) -> None:
    monkeypatch.setattr(ownership, "ROOT_UID", -1)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises((CacheError, DatabaseError), match=r"belongs to .*, and we are user 12345"):
        open_(tmp_path)


@WHO
def test_a_folder_that_anybody_may_rename_is_refused(tmp_path: Path, open_: Open) -> None:
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o777)
    with pytest.raises((CacheError, DatabaseError), match="above it can be written by everybody"):
        open_(above / "folder")
    above.chmod(0o1777)
    open_(above / "folder")


def test_a_group_of_one_s_own_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that the user's own group can write is taken: systems with the umask 0002 give each user a group."""
    tmp_path.chmod(0o770)
    monkeypatch.setattr(ownership, "_is_own_group", lambda gid: gid == tmp_path.stat().st_gid)
    open_database(tmp_path)


@pytest.mark.parametrize("file", ["plans.db", "plans.db-wal", "plans.db-journal"])
def test_a_database_s_files_that_others_can_write_are_refused(tmp_path: Path, file: str) -> None:
    (tmp_path / file).touch()
    (tmp_path / file).chmod(0o666)
    with pytest.raises(DatabaseError, match=rf"{file} can be written by others \(mode 0666\)"):
        open_database(tmp_path)


def test_nobody_else_reads_a_database(tmp_path: Path) -> None:
    """It holds names of other people's tensors, and the seal. Also one that an earlier version made."""
    path = tmp_path / "plans.db"
    path.touch()
    path.chmod(0o644)
    with Store(f"sqlite:///{path}") as store:
        store.seal()
        modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
        assert modes == {"plans.db": 0o600, "plans.db-wal": 0o600, "plans.db-shm": 0o600}


def test_a_database_has_one_seal(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path}/a.db") as one, Store(f"sqlite:///{tmp_path}/a.db") as same:
        assert len(one.seal()) == 32
        assert one.seal() == same.seal()
        with Store(f"sqlite:///{tmp_path}/b.db") as other:
            assert other.seal() != one.seal()
