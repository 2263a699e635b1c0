"""Exports as files that tests change: every line parsed, and the last one made to fit again."""

import hashlib
import json
from collections.abc import Callable, Iterable
from io import BytesIO
from typing import Any

from fusion_ir.records import Plan
from service.transfer.export import export
from tuning_db.store import Store

Lines = list[dict[str, Any]]


def exported(store: Store, keys: Iterable[str]) -> bytes:
    """The export of some plans."""
    file = BytesIO()
    export(store, [(key, Plan.model_validate_json(store.plans.plan(key) or b"")) for key in keys], file)
    return file.getvalue()


def changed(data: bytes, change: Callable[[Lines], None]) -> bytes:
    """The file after `change` of its lines, the last one aside, which says what it has to say of them."""
    lines = [json.loads(line) for line in data.splitlines()][:-1]
    change(lines)
    return sealed(lines)


def sealed(lines: Lines) -> bytes:
    """Lines with a last one that fits them."""
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    end = {"kind": "end", "lines": len(lines), "sha256": hashlib.sha256(body).hexdigest()}
    return body + json.dumps(end).encode() + b"\n"


def of_kind(lines: Lines, kind: str) -> Lines:
    """Lines of an export that have this kind."""
    return [line for line in lines if line["kind"] == kind]
