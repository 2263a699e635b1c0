"""`fuseplan db`: the revision of the database's tables."""

import sys

from service.cli.options import Db, Json
from service.cli.terminal import print_json
from service.settings import load
from tuning_db.store import Store


def upgrade(db: Db = None, json: Json = False) -> None:
    """Bring the tables to the newest revision; a SQLite file is copied first."""
    with Store(load({"db": db}).db, upgrade=True) as store:
        _print(store, json)


def current(db: Db = None, json: Json = False) -> None:
    """Print the revision of the tables."""
    with Store(load({"db": db}).db) as store:
        _print(store, json)


def _print(store: Store, json: bool) -> None:
    if json:
        print_json({"db": store.place, "revision": store.revision()})
    else:
        sys.stdout.write(f"{store.place}: revision {store.revision()}\n")
