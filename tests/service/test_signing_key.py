"""The signing key: made once, for nobody else, and refused where it may not be the service's alone."""

import io
import logging
import multiprocessing
import os
import stat
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fusion_ir import ownership
from service.signing import key as module
from service.signing.key import SigningKey, SigningKeyError, open_key


def test_a_key_is_made_at_the_first_start_and_stays(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir(mode=0o755)
    before = os.umask(0)
    try:
        first = open_key(tmp_path / "new" / "folder" / "key.pem")
    finally:
        os.umask(before)
    file = tmp_path / "new" / "folder" / "key.pem"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [p.name for p in file.parent.iterdir()] == ["key.pem"]
    again = open_key(file)
    assert (again.public, again.id) == (first.public, first.id)
    assert open_key(tmp_path / "other.pem").public != first.public


def test_a_signature_is_one_of_the_public_key(tmp_path: Path) -> None:
    key = open_key(tmp_path / "key.pem")
    version, id_, text = key.signature(b"message").split(" ")
    assert (version, id_) == ("v1", key.id)
    Ed25519PublicKey.from_public_bytes(b64decode(key.public)).verify(b64decode(text), b"message")


def _open(file: Path, start: Any, results: Any) -> None:
    start.wait()
    results.put(open_key(file).public)


def test_servers_that_start_at_the_same_time_get_one_key(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    for round_ in range(5):
        start, results = context.Event(), context.Queue()
        args = (tmp_path / f"{round_}.pem", start, results)
        children = [context.Process(target=_open, args=args) for _ in range(4)]
        for child in children:
            child.start()
        start.set()
        assert len({results.get(timeout=30) for _ in children}) == 1
        for child in children:
            child.join(30)
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"{i}.pem" for i in range(5)]


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644, 0o602, 0o620, 0o601, 0o610, 0o777])
def test_a_file_that_others_may_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "key.pem"
    open_key(file)
    file.chmod(mode)
    with pytest.raises(SigningKeyError, match=rf"others can read or write the signing key .*mode {mode:04o}"):
        open_key(file)
    file.chmod(0o400)
    open_key(file)


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "_is_own_group", lambda gid: False)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o770)
    with pytest.raises(SigningKeyError, match="can be written by others"):
        open_key(tmp_path / "open" / "key.pem")
    assert list((tmp_path / "open").iterdir()) == []


def test_a_key_of_another_owner_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_key(tmp_path / "key.pem")
    monkeypatch.setattr(module, "make_private", lambda folder: None)
    monkeypatch.setattr(module, "ROOT_UID", -1)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(SigningKeyError, match="belongs to user"):
        open_key(tmp_path / "key.pem")


def rsa_key() -> bytes:
    made = rsa.generate_private_key(65537, 2048)
    return made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda text: b"",
    "cut off": lambda text: text[: len(text) // 2],
    "a bit turned": lambda text: text[:40] + bytes((text[40] ^ 0xFF,)) + text[41:],
    "of another kind": lambda text: rsa_key(),
    "a secret of somebody's": lambda text: b"-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n",
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_damaged_key_is_refused_and_not_quoted_and_stays_as_it_is(tmp_path: Path, how: str) -> None:
    file = tmp_path / "key.pem"
    open_key(file)
    content = BROKEN[how](file.read_bytes())
    file.write_bytes(content)
    with pytest.raises(SigningKeyError, match="holds no Ed25519 key") as caught:
        open_key(file)
    assert "hunter2" not in str(caught.value)
    assert file.read_bytes() == content


def test_a_folder_or_a_pipe_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key.pem").mkdir()
    os.mkfifo(tmp_path / "pipe.pem", 0o600)
    (tmp_path / "file").write_text("")
    for name in ("key.pem", "pipe.pem", "file/key.pem"):
        with pytest.raises(SigningKeyError):
            open_key(tmp_path / name)


def test_a_full_disk_leaves_no_half_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(SigningKeyError, match="No space left"):
        open_key(tmp_path / "key.pem")
    assert list(tmp_path.iterdir()) == []


def test_nothing_shows_the_private_part(tmp_path: Path) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger().addHandler(handler)
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.DEBUG)
    try:
        key = open_key(tmp_path / "key.pem")
        key.signature(b"message")
        logging.getLogger().warning("%s %r", key, key)
    finally:
        logging.getLogger().removeHandler(handler)
        logging.getLogger().setLevel(level)
    secret = "".join((tmp_path / "key.pem").read_text().splitlines()[1:-1])
    shown = stream.getvalue() + repr(key) + str(key) + repr(vars(key))
    assert isinstance(key, SigningKey)
    assert f"SigningKey({key.id})" in stream.getvalue()
    assert not any(secret[i : i + 12] in shown for i in range(len(secret) - 12))
