"""`fuseplan key`: the key that the service signs its answers with."""

import sys
from pathlib import Path

from service.cli.options import Json
from service.cli.terminal import print_json
from service.settings import load
from service.signing.key import open_key


def show_key(json: Json = False) -> None:
    """Print the public key that answers and bundles are signed with, in base64: what a client is given as
    FUSEPLAN_SERVER_KEY. The key is made where there is none yet; the private part is never shown."""
    key = open_key(Path(load({}).signing_key))
    if json:
        print_json({"algorithm": "Ed25519", "key_id": key.id, "public_key": key.public})
    else:
        sys.stdout.write(f"{key.public}\n")
