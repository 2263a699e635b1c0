"""Whom a folder belongs to: code that this process will load lies where nobody else can write."""

import grp
import os
import pwd
import stat
from pathlib import Path

SYSTEM = 0  # the user id of root


class Exposed(OSError):
    """Somebody else owns a folder or file, or can write to it; the message says what to do."""


def make_private(folder: Path) -> None:
    """Makes a folder for this user alone where there is none, then checks it. Raises OSError, of which Exposed."""
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        check_folder(folder)
        return
    check_folder(folder)


def check_folder(folder: Path) -> None:
    """Raises Exposed unless the folder is ours or the system's and nobody else may write to it, and no folder above it
    lets everybody rename what is in it; folders like /tmp let owners alone do that. Raises OSError."""
    real = folder.resolve(strict=True)
    found = real.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise Exposed(f"{real} is no folder")
    check_owner(real, found)
    for above in real.parents:
        mode = above.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise Exposed(
                f"{above}, above the cache, can be written by everybody: chmod o-w {above}, or choose another"
            )


def check_owner(path: Path, found: os.stat_result) -> None:
    """Raises Exposed unless what was found is ours or the system's, and nobody else may write to it."""
    us = os.geteuid()
    if found.st_uid not in (us, SYSTEM):
        raise Exposed(f"{path} belongs to user {found.st_uid}, and we are user {us}: choose another")
    for_others = found.st_mode & stat.S_IWOTH
    for_group = found.st_mode & stat.S_IWGRP and not _is_group_of_one(found.st_gid)
    if for_others or for_group:
        mode = stat.S_IMODE(found.st_mode)
        raise Exposed(
            f"others can write to {path} (mode {mode:04o}): choose another, or if nobody did: chmod go-w {path}"
        )


def _is_group_of_one(gid: int) -> bool:
    """Whether a group is the one that many systems make for each user, and has no other member."""
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return (gid, group.gr_name) == (user.pw_gid, user.pw_name) and set(group.gr_mem) <= {user.pw_name}
