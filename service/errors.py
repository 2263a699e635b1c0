"""Errors over HTTP: one table of problem types, one document shape (RFC 9457), made in one place."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fusion_ir.formats.json.members import known_members

MEDIA_TYPE = "application/problem+json"
DETAIL_CHARACTERS = 600
PLACE_CHARACTERS = 200
RETRY_SECONDS = 5  # after an answer that may be another soon, where nothing else is known
GOT_CHARACTERS = 80  # of a value that was found wrong
UNTOLD = ("missing", "extra_forbidden")  # faults that are no value's
OBJECTS = ("dict_type", "model_type", "model_attributes_type")  # pydantic names its classes and Python's dictionaries


@dataclass(frozen=True)
class ProblemType:
    """A row of `PROBLEM_TYPES`. `slug` is stable: clients may compare it. Its page shows `meaning` and `remedy`."""

    slug: str
    status: int
    title: str
    meaning: str
    remedy: str

    @property
    def uri(self) -> str:
        """The `type` member: a reference that resolves, on the server that sent it, to a page about the problem."""
        return f"/errors/{self.slug}"


PROBLEM_TYPES: dict[str, ProblemType] = {
    row.slug: row
    for row in (
        ProblemType(
            "bad-json",
            400,
            "The body is not JSON",
            "The body could not be read as JSON in UTF-8: it is cut off, has a syntax error, a key twice in an object, "
            "or an integer of thousands of digits.",
            "Look at `place`, the line and column where reading stopped.",
        ),
        ProblemType(
            "bad-request",
            422,
            "The request does not have the expected form",
            "The body is JSON, or the query is well formed, but a member is missing, unknown, of the wrong type, "
            "out of range, NaN or infinite.",
            "Look at `place`: a JSON pointer into the body, or the name of the parameter or header.",
        ),
        ProblemType(
            "bad-graph",
            422,
            "The graph cannot be accepted",
            "The graph was read and found wrong: an unknown op, a wrong number of operands, shapes or dtypes that do "
            "not go together, too many nodes, a rank or tensors beyond the limits, "
            "a cycle, a missing or repeated name, or strides that are negative or overlap.",
            "Look at `place`: a JSON pointer for the wire format, line and column for text.",
        ),
        ProblemType(
            "unsupported-media-type",
            415,
            "The body has a media type that is not read here",
            "Bodies are read as `application/json` only, those of batches as `application/x-ndjson` or "
            "`application/jsonl`.",
            "Send the `Content-Type` that `detail` names.",
        ),
        ProblemType(
            "body-too-large",
            413,
            "The body is too large",
            "The body has more bytes than the server's limit; it was not read to its end.",
            "Send less, or raise the setting `max_body_bytes` (`max_batch_bytes` for batches).",
        ),
        ProblemType(
            "too-much-to-read",
            422,
            "The body takes too much to read",
            "Reading the body took more time of a processor, or more memory, than there is for one. It was ended.",
            "Send a smaller graph; one of as many nodes as are allowed is read in a part of the time.",
        ),
        ProblemType(
            "too-many-bodies",
            429,
            "Too many bodies wait to be read",
            "As many bodies as the server holds at once are waiting to be read, or are being received.",
            "Wait for the seconds in `Retry-After`, then ask again.",
        ),
        ProblemType(
            "body-too-slow",
            408,
            "The body comes too slowly",
            "The body was not received in the time there is for one of its size.",
            "Send it at 50 kB a second or more.",
        ),
        ProblemType(
            "bad-batch",
            422,
            "The batch cannot be taken apart",
            "A line of the batch is no JSON object with a `custom_id` of its own, or there are no lines, or too many. "
            "Nothing of the batch was kept. (A line with a bad graph does no harm: it becomes an item that failed.)",
            "Look at `place`, the number of the line, and its column where there is one.",
        ),
        ProblemType(
            "batch-too-large",
            422,
            "The batch can never wait as a whole",
            "The batch needs more operations than the setting `max_batch_queue` lets wait, were the queue empty. "
            "Nothing of it was kept.",
            "Send it in parts, or raise the setting; `detail` has both numbers.",
        ),
        ProblemType(
            "idempotency-key-reused",
            422,
            "The idempotency key came with another payload",
            "`Idempotency-Key` names a batch that was submitted before, with other lines or other parameters.",
            "Take a new key for a new batch.",
        ),
        ProblemType(
            "idempotency-key-in-flight",
            409,
            "A request with this idempotency key is being answered",
            "Another request with the same `Idempotency-Key` has not been answered yet.",
            "Repeat the request once the other one has ended.",
        ),
        ProblemType(
            "no-device",
            422,
            "The device is not available",
            "The target names a device that this server does not have, or that cannot be used as it is.",
            "`detail` says what is missing and what to install; `GET /v1/devices` lists what there is.",
        ),
        ProblemType(
            "other-device",
            409,
            "The device is of another class",
            "The request says which class of devices its plan has to be for (`device_key`), and the device that the "
            "target names on this server is of another one: the plan might not run there, or be slow.",
            "`detail` has both. Ask a server on a machine of that class; or see what differs: the processor, its "
            "instructions, how many CPUs each process may use (affinity, limits of a container), the libraries that "
            "plans call.",
        ),
        ProblemType(
            "device-quarantined",
            503,
            "The device is out of service",
            "After a kernel had ended badly, the device failed to run one that is known to be right. Nothing runs on "
            "it until a person has looked at it; stored plans are still answered.",
            "`detail` says what failed; `fuseplan devices --release NAME` puts the device into service again.",
        ),
        ProblemType(
            "not-found",
            404,
            "There is nothing here",
            "No endpoint, plan, graph, binary, step, operation or batch has this address.",
            "Keys are 64 lower-case hexadecimal digits; for a plan's key and a batch's id the first ones may stand, at "
            "least four. An evicted plan is gone: resolve its graph again.",
        ),
        ProblemType(
            "ambiguous-key",
            409,
            "More than one key begins so",
            "The address has the beginning of a key, and more than one plan or batch has a key that begins so.",
            "Give more digits; `detail` lists those there are.",
        ),
        ProblemType(
            "unknown-graph",
            404,
            "No graph with this key is stored",
            "A request named a graph by its key, but the graph itself was never sent.",
            "Send the graph itself.",
        ),
        ProblemType(
            "method-not-allowed",
            405,
            "The method does not apply here",
            "The address exists, but not with this method.",
            "The `Allow` header lists the methods.",
        ),
        ProblemType(
            "precondition-failed",
            412,
            "The precondition does not hold",
            "`If-Match` names a version that is not the stored one.",
            "Read it again and repeat the request with its ETag.",
        ),
        ProblemType(
            "wrong-host",
            421,
            "The request names another host",
            "The `Host` header is no loopback name, nor one that the setting `allowed_hosts` names. This keeps pages "
            "on other sites from reaching a local server by giving it a name of theirs.",
            "Use http://127.0.0.1 or http://localhost.",
        ),
        ProblemType(
            "cross-site",
            403,
            "The request comes from another site",
            "A browser sent this request from a page of another origin.",
            "Call the API from outside a page, or from the server's own pages.",
        ),
        ProblemType(
            "too-many-operations",
            429,
            "The queue is full",
            "As many operations wait as the settings `max_queue`, for single requests, and `max_batch_queue` allow.",
            "Wait for the seconds in `Retry-After`, then ask again.",
        ),
        ProblemType(
            "too-many-streams",
            429,
            "Too many streams of events are open",
            "As many streams of events are open as the server allows (setting `max_event_streams`).",
            "Close some, or look at the batch itself now and then.",
        ),
        ProblemType(
            "tuning-failed",
            500,
            "No plan could be made",
            "The search ended without a plan that gives correct results, or three workers were lost over it.",
            "`detail` says why; the operation keeps the record.",
        ),
        ProblemType(
            "kernels-disagree",
            500,
            "No kernel gives what the interpreter gives",
            "Every kernel of some part of the graph was refused, or every plan, even the one with a kernel per op: "
            "an element of what they make differs from what the language's interpreter makes by more than errors do.",
            "`detail` names the node, the element, both values, and what the error bound and perturbed runs allow. "
            "Either the compiler or a kernel is wrong, or the tolerance: report it with the graph.",
        ),
        ProblemType(
            "memory-exceeded",
            422,
            "No plan fits into memory",
            "The device has fewer bytes than the graph's inputs and outputs take, or every plan that the search found "
            "needs more bytes of temporaries than `memory_bytes` allows.",
            "`detail` says which, and how many the least of the plans needs: ask with that many, or without a limit.",
        ),
        ProblemType(
            "cancelled",
            409,
            "The operation was cancelled",
            "Someone cancelled the operation that this request was waiting for.",
            "Ask again to start a new one.",
        ),
        ProblemType(
            "database-unavailable",
            503,
            "The database does not answer",
            "The server cannot reach its database, or may not write to it.",
            "Look at /readyz and at the server's log.",
        ),
        ProblemType(
            "busy",
            503,
            "The server has too much to do",
            "As many requests of this kind as the server works on at once are being answered, or this one took too "
            "long.",
            "Wait for the seconds in `Retry-After`, then ask again.",
        ),
        ProblemType(
            "stopping",
            503,
            "The server ends",
            "The server was told to end while the request waited. What was begun goes on with the next server: nothing "
            "is lost.",
            "Ask again after the seconds in `Retry-After`; `Location` is the operation that the request waited for.",
        ),
        ProblemType(
            "http-error",
            400,
            "The request cannot be served",
            "The request breaks a rule of HTTP.",
            "`detail` says which.",
        ),
        ProblemType(
            "internal",
            500,
            "Something failed inside the server",
            "A fault of the server. Nothing about the request was kept.",
            "The server's log has the details, under the incident in `detail`.",
        ),
    )
}


class Problem(BaseModel):
    """The shape of every error body. `place` is a JSON pointer, a line:column, or the name of a parameter or header."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str = Field(examples=["/errors/bad-graph"])
    title: str
    status: int
    detail: str
    place: str | None = None


class ApiError(Exception):
    """Raised anywhere in an endpoint; becomes a problem document. `slug` is a row of PROBLEM_TYPES."""

    def __init__(
        self,
        slug: str,
        detail: str,
        place: str | None = None,
        *,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.slug, self.detail, self.place, self.headers = slug, detail, place, dict(headers or {})
        self.status = PROBLEM_TYPES[slug].status if status is None else status


class OperationFailed(ApiError):
    """The problem that an operation failed with, told to who waited for it. Metrics have it by the operation."""


def problem(slug: str, detail: str, place: str | None = None, status: int | None = None) -> Problem:
    """The document. Text is cut to a length and freed of control characters: it may hold words of the client's."""
    row = PROBLEM_TYPES[slug]
    return Problem(
        type=row.uri,
        title=row.title,
        status=row.status if status is None else status,
        detail=printable(detail, DETAIL_CHARACTERS),
        place=None if place is None else printable(place, PLACE_CHARACTERS),
    )


def pointer(location: Sequence[int | str]) -> str:
    """RFC 6901 JSON pointer: ("graph", "nodes", 3) -> "/graph/nodes/3". The whole document is ""."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in location)


def from_validation(error: ValidationError, model: type[BaseModel]) -> ApiError:
    """The first fault that pydantic found in a `model`, with what was there instead where that is short."""
    first: Any = error.errors(include_url=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        return bad_json(str(first["msg"]).removeprefix("Invalid JSON: "))
    if first["type"] == "extra_forbidden":
        known = ", ".join(known_members(model, first["loc"]))
        return ApiError("bad-request", f"There is no such member; there are {known}.", pointer(first["loc"]))
    return ApiError("bad-request", in_words(first), pointer(first["loc"]) or "/")


def in_words(fault: Any) -> str:
    """A fault that pydantic found: what it expected, and what was there instead, where that is short."""
    given = fault["input"]
    is_short = fault["type"] not in UNTOLD and (given is None or isinstance(given, str | int | float))
    expected = "Input should be an object" if fault["type"] in OBJECTS else str(fault["msg"])
    return f"{expected}, got {json.dumps(given)[:GOT_CHARACTERS]}" if is_short else expected


def bad_json(message: str) -> ApiError:
    """From a message of the JSON reader that ends with "at line L column C"."""
    reason, _, tail = message.rpartition(" at line ")
    line, _, column = tail.partition(" column ")
    if reason and line.isdigit() and column.isdigit():
        return ApiError("bad-json", reason, f"{line}:{column}")
    return ApiError("bad-json", message, "1:1")


def printable(text: str, limit: int = PLACE_CHARACTERS) -> str:
    """One line of at most `limit` characters."""
    shown = "".join(c if c.isprintable() else " " for c in text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def markdown() -> str:
    """docs/errors.md, from the table."""
    lines = [
        "# Errors",
        "",
        "Every error of the HTTP API is a problem document (RFC 9457), `application/problem+json`, with the members",
        "`type`, `title`, `status`, `detail` and, where there is one, `place`. `type` is stable; it is also the",
        "address of a page on the server that sent it.",
        "This page is printed from the table in `service/errors.py`.",
        "",
    ]
    for row in PROBLEM_TYPES.values():
        lines += [
            f"## {row.slug}",
            "",
            f"`{row.uri}`, status {row.status}: {row.title}.",
            "",
            row.meaning,
            "",
            row.remedy,
            "",
        ]
    return "\n".join(lines)
