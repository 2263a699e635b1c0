"""Whom files belong to: code and decisions that this process will trust lie where nobody else can write."""

import grp
import os
import pwd
import stat
from pathlib import Path

ROOT_UID = 0
WRITABLE = stat.S_IWGRP | stat.S_IWOTH


class Exposed(OSError):
    """A folder or file that somebody else could have written, or can; the message says what to do."""


def check_folder(folder: Path) -> None:
    """Raises Exposed unless the folder is ours or the system's, and nobody else may write there: others could put
    files into it. A folder above it that all may write, where anybody may rename it, is refused as well, but for those
    like /tmp where only owners may."""
    folder = folder.resolve()
    _check(folder, folder.stat())
    for above in folder.parents:
        mode = above.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise Exposed(f"{above} above it can be written by everybody; choose another, or: chmod o-w {above}")


def check_file(file: Path) -> None:
    """Raises Exposed for a file that is there and is not ours or the system's, or that others may write."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return
    _check(file, found)


def make_private(folder: Path) -> None:
    """Makes a folder where there is none, with those above it, for nobody else. Raises OSError, and Exposed where it
    was there and others can write to it."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    check_folder(folder)


def _check(path: Path, found: os.stat_result) -> None:
    us = os.geteuid()
    if found.st_uid not in (us, ROOT_UID):
        raise Exposed(f"{path} belongs to {_name(found.st_uid)}, and we are {_name(us)}; choose another")
    if found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid)):
        raise Exposed(
            f"{path} can be written by others (mode {stat.S_IMODE(found.st_mode):04o}); choose another, or, if nobody "
            f"did: chmod go-w {path}"
        )


def _is_own_group(gid: int) -> bool:
    """Whether this is the group that a user has for themselves, as many systems make one for each."""
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return group.gr_gid == user.pw_gid and group.gr_name == user.pw_name and not set(group.gr_mem) - {user.pw_name}


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
