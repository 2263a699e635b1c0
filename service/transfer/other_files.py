"""Files that are no export at all, and what they are instead, from how they begin."""

import json

from fusion_ir.errors import FormatError, excerpt
from fusion_ir.formats import looks_like
from service.transfer.lines import KINDS

SNIFFED_BYTES = 4096
_KINDS = {kind.model_fields["kind"].default for kind in KINDS}


def is_of_an_export(line: bytes) -> bool:
    """Whether a first line is one of an export, of which something may be wrong, or the beginning of one."""
    if b'"fuseplan.export"' in line:
        return True
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.get("kind") in [*_KINDS]


def no_export(begin: bytes) -> FormatError:
    """begin: how the file begins, as far as `SNIFFED_BYTES` or the limit of a line."""
    return FormatError(
        "", f"no file of `fuseplan plans export`, whose first line is of the kind fuseplan.export: {_is(begin)}"
    )


def _is(begin: bytes) -> str:
    if not begin.strip():
        return "it is empty" if not begin else "it has nothing but white space"
    try:
        text = begin[:SNIFFED_BYTES].decode()
    except UnicodeDecodeError as error:
        if len(begin) <= SNIFFED_BYTES or error.start < SNIFFED_BYTES - 3:
            return "it is no text"
        text = begin[: error.start].decode()
    if "\0" in text:
        return "it is no text"
    reader = looks_like(text)
    if reader is not None and (reader.name != "json" or '"fuseplan.graph"' in text):
        return f"it looks like a graph ({reader.name}), which `fuseplan tune` takes"
    if reader is not None:
        return f"it is other JSON, or none, and begins with {excerpt(text.strip())}"
    return f"it begins with {excerpt(text.strip())}"
