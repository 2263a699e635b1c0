"""Plans from a running server: the few requests that the command line and the demo make."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import httpx
from pydantic import ValidationError

from service.api.models import Key, OperationModel, Resolution
from service.cli.errors import CommandError, bad_input, failed
from service.errors import Problem

WAIT_SECONDS = 2.0  # that the server holds a look at an operation: how old the progress is that a person sees
PAUSE_SECONDS = 0.25  # between looks at least, where a server does not wait
RESOLVE = "/v1/plans:resolve"
JSON = {"Content-Type": "application/json"}
Report = Callable[[Mapping[str, Any] | None], None]  # gets the operation's progress, as the server words it


def encode(body: Mapping[str, Any]) -> bytes:
    """The body of a request. Equal bodies give equal bytes, which the server remembers having read."""
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()


class Remote:
    """One server. Every method raises CommandError where the server cannot be reached or refuses."""

    def __init__(self, url: str, timeout_seconds: float = 90.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise bad_input(f"--server: expected http://HOST:PORT, got {url!r}")
        self.url = url.rstrip("/")
        try:
            self._client = httpx.Client(base_url=self.url, timeout=timeout_seconds, trust_env=False)
        except (httpx.InvalidURL, ValueError) as error:
            raise bad_input(f"--server: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._client.close()

    def resolve(self, body: Mapping[str, Any], report: Report = lambda progress: None) -> Resolution:
        """The plan for `body` (see ResolveRequest), waited for as long as the search takes."""
        content = encode(body)
        response = self._send("POST", RESOLVE, content=content, headers=JSON)
        if response.status_code == httpx.codes.OK:
            return _resolution(response)
        operation = self._ended(response.headers["Location"], report)
        if operation.error is not None:
            raise _refused(operation.error)
        response = self._send("POST", RESOLVE, content=content, headers=JSON)
        if response.status_code != httpx.codes.OK:
            raise failed(f"{self.url}: the operation {operation.id} ended, but its plan is not there")
        return _resolution(response).model_copy(update={"cache": "miss"})

    def operation(self, address: str, wait_seconds: float = 0.0) -> OperationModel:
        """The operation at `address`, as soon as its state changes or after `wait_seconds`."""
        headers = {"Prefer": f"wait={wait_seconds:g}"} if wait_seconds else {}
        return OperationModel.model_validate_json(self._send("GET", address, headers=headers).content)

    def _ended(self, address: str, report: Report) -> OperationModel:
        """The operation once it has ended. The server waits, not the client: polling takes a CPU from the search."""
        operation = self.operation(address)
        report(operation.progress)
        while not operation.done:
            asked = time.monotonic()
            operation = self.operation(address, WAIT_SECONDS)
            report(operation.progress)
            if not operation.done:
                time.sleep(max(0.0, PAUSE_SECONDS - (time.monotonic() - asked)))
        return operation

    def ready(self) -> bool:
        """Whether the server and its parts answer; never raises for one that is not up yet."""
        try:
            return self._client.get("/readyz", timeout=5.0).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def resolve_raw(self, content: bytes) -> tuple[httpx.Response, float]:
        """One request with a prepared body, and the milliseconds until its answer was read."""
        started = time.perf_counter()
        response = self._send("POST", RESOLVE, content=content, headers=JSON)
        return response, (time.perf_counter() - started) * 1e3

    def page(self, plan_key: Key) -> str:
        """The address of the plan's page."""
        return f"{self.url}/plans/{plan_key}"

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        with self._reached():
            response = self._client.request(method, path, **request)
        if not response.is_success:
            raise self._refusal(response)
        return response

    def _refusal(self, response: httpx.Response) -> CommandError:
        """The error for an answer without success: its problem in words, or its status where it has none."""
        try:
            return _refused(Problem.model_validate_json(response.content))
        except ValidationError:
            where = f"{self.url}{response.url.path} answered {response.status_code}"
            return failed(f"{where} and no problem document; is it Fuseplan?")

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except httpx.HTTPError as error:
            raise failed(f"{self.url}: {error or type(error).__name__}") from error


def _resolution(response: httpx.Response) -> Resolution:
    return Resolution.model_validate_json(response.content)


def _refused(problem: Problem) -> CommandError:
    place = f"{problem.place}: " if problem.place else ""
    make = bad_input if 400 <= problem.status < 500 else failed
    return make(f"{place}{problem.detail}")
