"""The service's Ed25519 key: made at the first start, kept in a file that nobody else can read, never shown."""

import base64
import hashlib
import os
import secrets
import stat
from functools import lru_cache
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from fusion_ir.ownership import ROOT_UID, Exposed, make_private
from service.signing.messages import VERSION

FOR_OTHERS = stat.S_IRWXG | stat.S_IRWXO
MOST_BYTES = 4096
KEY_ID_DIGITS = 16
MOST_KEPT = 4096  # signatures, of some hundred bytes each


class SigningKeyError(Exception):
    """There is no key that may be used, and none can be made; the message says what to do, and holds nothing of it."""


class SigningKey:
    """A private key that is used and not shown. public: the public key, 32 bytes in base64; id: the first digits of the
    sha256 of these bytes."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.public = base64.b64encode(raw).decode()
        self.id = hashlib.sha256(raw).hexdigest()[:KEY_ID_DIGITS]
        self._lately = lru_cache(MOST_KEPT)(self._signature)

    def __repr__(self) -> str:
        return f"SigningKey({self.id})"

    def signature(self, message: bytes) -> str:
        """The signature as a header and the file of a bundle have it: version, id of the key, base64. A message that
        was signed lately, as the answer to a request that comes again, is not signed anew: it would get the same
        one."""
        return self._lately(message)

    def _signature(self, message: bytes) -> str:
        return f"{VERSION} {self.id} {base64.b64encode(self._key.sign(message)).decode()}"


def open_key(file: Path) -> SigningKey:
    """The key in a file, which is made where there is none: whoever begins at the same time gets the same one. Raises
    SigningKeyError."""
    try:
        make_private(file.absolute().parent)
        if not os.path.lexists(file):
            _make(file)
        return SigningKey(_read(file))
    except Exposed as e:
        raise SigningKeyError(f"the signing key: {e}") from e
    except OSError as e:
        raise SigningKeyError(
            f"the signing key {file} cannot be read or made: {e.strerror or e}; signing_key may name another file"
        ) from e


def _make(file: Path) -> None:
    """Writes a new key whole and puts it in place, unless another process did meanwhile. Raises OSError."""
    content = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    new = file.with_name(f".{file.name}.{os.getpid()}-{secrets.token_hex(8)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(descriptor)  # clients come to trust this key: it must not be lost to a crash
        try:
            os.link(new, file)
        except FileExistsError:
            return
    finally:
        new.unlink(missing_ok=True)
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read(file: Path) -> Ed25519PrivateKey:
    """Raises SigningKeyError, OSError."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as opened:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise SigningKeyError(f"the signing key {file} is no file")
        if found.st_uid not in (os.geteuid(), ROOT_UID):
            raise SigningKeyError(f"the signing key {file} belongs to user {found.st_uid}, and we are {os.geteuid()}")
        if found.st_mode & FOR_OTHERS:
            raise SigningKeyError(
                f"others can read or write the signing key {file} (mode {stat.S_IMODE(found.st_mode):04o}): if they "
                f"may have, remove it, so that another one is made, and give clients that; else: chmod 600 {file}"
            )
        content = opened.read(MOST_BYTES)
    try:
        key = load_pem_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None  # the reason may quote the file
    if not isinstance(key, Ed25519PrivateKey):
        raise SigningKeyError(f"the signing key {file} holds no Ed25519 key in PEM: remove it, and another one is made")
    return key
