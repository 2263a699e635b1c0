"""Signatures from the service to the client, over a real socket; and whatever may be done to an answer between them."""

import base64
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from fuseplan_client.server import Answer, BadAnswer, PlanClient, ServerAbsent, Untrusted
from fuseplan_client.server import session as session_module
from fuseplan_client.server import trust as trust_module
from fuseplan_client.signatures import SignatureError, TrustedKeys, answer_message

from fusion_ir.keys.graph_key import graph_key
from service.signing.key import open_key
from service.signing.messages import answer_message as service_message
from testing.plan_server import Asked, Piece, PlanServer, patient, plan_server
from tests.support.served_app import Served, served
from tests.support.service_app import wire
from tests.support.stored_plans import BINARY, chain, sha, store_plan
from tuning_db.reading.graphs import Names

LIMITS = patient(attempts=2)
REQUEST = {"graph": wire()}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with the plans of two graphs."""
    with served(tmp_path_factory.mktemp("served")) as found:
        for size in (8, 16):
            store_plan(found.store, chain(size), Names(("x",), ("y",)))
        yield found


Change = Callable[[httpx.Response], tuple[dict[str, str], bytes]]


def as_it_is(response: httpx.Response) -> tuple[dict[str, str], bytes]:
    return dict(response.headers), response.content


@pytest.fixture
def between(service: Served) -> Iterator[tuple[PlanServer, list[Change]]]:
    """A server that passes requests on, and changes the answers by the last function of the list."""
    changes: list[Change] = [as_it_is]

    def respond(asked: Asked) -> Sequence[Piece]:
        headers = {"Content-Type": "application/json"} if asked.body else {}
        response = httpx.request(asked.method, service.url + asked.path, content=asked.body, headers=headers)
        found, body = changes[-1](response)
        drop = ("content-length", "connection", "transfer-encoding")
        lines = [f"HTTP/1.1 {response.status_code} X", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in found.items() if name.lower() not in drop]
        return ("\r\n".join(lines).encode() + b"\r\n\r\n" + body,)

    with plan_server(respond) as found:
        yield found, changes


def client_of(url: str, folder: Path, *keys: str, **more: Any) -> PlanClient:
    return PlanClient(url, limits=LIMITS, cache=folder, server_keys=keys, **more)


def test_a_signed_plan_is_taken_and_its_binary_named_in_it(service: Served, tmp_path: Path) -> None:
    client = client_of(service.url, tmp_path / "c", service.public_key)
    found = client.resolve(REQUEST)
    assert isinstance(found, Answer)
    assert (found.cache, found.state, found.names.inputs) == ("hit", "measured", ("x",))
    assert client.binary(found.binaries[0]) == BINARY
    by_key = client.resolve({"graph_key": graph_key(chain())})
    assert isinstance(by_key, Answer)
    assert by_key.plan_key == found.plan_key


def test_a_plan_by_its_key_is_signed_and_nothing_else_is(service: Served) -> None:
    plan = httpx.post(f"{service.url}/v1/plans:resolve", json=REQUEST).json()["plan_key"]
    keys = TrustedKeys([service.public_key])
    for method in ("GET", "HEAD"):
        response = httpx.request(method, f"{service.url}/v1/plans/{plan}")
        body = httpx.get(f"{service.url}/v1/plans/{plan}").content
        keys.check(response.headers["fuseplan-signature"], answer_message("GET", f"/v1/plans/{plan}", b"", body), "it")
    again = httpx.get(f"{service.url}/v1/plans/{plan}", headers={"If-None-Match": f'"{plan}"'})
    assert again.status_code == 304
    for response in (again, httpx.get(f"{service.url}/v1/plans"), httpx.get(f"{service.url}/v1/plans/{'0' * 64}")):
        assert "fuseplan-signature" not in response.headers


def test_the_public_key_is_told_for_people_to_compare(service: Served) -> None:
    told = httpx.get(f"{service.url}/v1/key").json()
    key = open_key(Path(service.settings.signing_key))
    assert told == {"algorithm": "Ed25519", "key_id": key.id, "public_key": key.public}
    assert len(base64.b64decode(told["public_key"])) == 32


def test_both_sides_sign_the_same_bytes() -> None:
    body = b'{"a": 1}'
    assert answer_message("POST", "/v1/x", body, b"answer") == service_message("POST", "/v1/x", sha(body), b"answer")


def replaced(old: bytes, new: bytes) -> Change:
    def change(response: httpx.Response) -> tuple[dict[str, str], bytes]:
        assert old in response.content
        return dict(response.headers), response.content.replace(old, new, 1)

    return change


def resigned(edit: Callable[[str], str | None]) -> Change:
    """Another header in place of the signature; None: no header."""

    def change(response: httpx.Response) -> tuple[dict[str, str], bytes]:
        headers = dict(response.headers)
        signature = edit(headers.pop("fuseplan-signature"))
        return headers | ({} if signature is None else {"Fuseplan-Signature": signature}), response.content

    return change


FORGED: dict[str, tuple[Change, str]] = {
    "a state changed": (replaced(b'"state":"measured"', b'"state":"predicted"'), "was changed"),
    "space added": (replaced(b'"names":', b'"names": '), "was changed"),
    "names changed": (replaced(b'"names":{"inputs": ["x"]', b'"names":{"inputs": ["z"]'), "was changed"),
    "stripped": (resigned(lambda s: None), "is not signed"),
    "empty": (resigned(lambda s: " "), "is not signed"),
    "cut off": (resigned(lambda s: s[:-5]), "cut off or malformed"),
    "cut to the id": (resigned(lambda s: " ".join(s.split()[:2])), "cut off or malformed"),
    "four characters less": (resigned(lambda s: s[:-8] + "===="), "cut off or malformed"),
    "words added": (resigned(lambda s: s + " x"), "cut off or malformed"),
    "of another version": (resigned(lambda s: s.replace("v1", "v2")), "version 'v2'"),
    "by an unknown key": (resigned(lambda s: f"v1 {'0' * 16} {s.split()[2]}"), "these are trusted"),
    "nought": (resigned(lambda s: f"{s[:20]}{base64.b64encode(bytes(64)).decode()}"), "was changed"),
    "noughts": (resigned(lambda s: "v1 0 0"), "cut off or malformed"),
}


@pytest.mark.parametrize("how", FORGED)
def test_what_was_tampered_with_is_neither_taken_nor_kept(
    how: str, service: Served, between: tuple[PlanServer, list[Change]], tmp_path: Path
) -> None:
    server, changes = between
    change, why = FORGED[how]
    changes.append(change)
    client = client_of(server.url, tmp_path / "c", service.public_key)
    with pytest.raises(Untrusted, match=why):
        client.resolve(REQUEST)
    changes.append(as_it_is)
    assert isinstance(client.resolve(REQUEST), Answer)
    changes.append(change)
    kept = client.resolve(REQUEST)
    assert isinstance(kept, Answer)
    assert kept.kept, "the answer of before is still one"


def test_no_bit_of_a_signed_answer_may_be_another(
    service: Served, between: tuple[PlanServer, list[Change]], tmp_path: Path
) -> None:
    server, changes = between
    rng = random.Random(seed := random.SystemRandom().randrange(2**32))
    print(f"seed {seed}")

    def turn(response: httpx.Response) -> tuple[dict[str, str], bytes]:
        body = bytearray(response.content)
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
        return dict(response.headers), bytes(body)

    changes.append(turn)
    client = client_of(server.url, tmp_path / "c", service.public_key)
    for _ in range(25):
        with pytest.raises(Untrusted, match="was changed"):
            client.resolve(REQUEST)


def test_the_answer_to_another_request_is_not_taken(
    service: Served, between: tuple[PlanServer, list[Change]], tmp_path: Path
) -> None:
    server, changes = between
    other = httpx.post(f"{service.url}/v1/plans:resolve", json={"graph": wire(16)})
    plan = other.json()["plan_key"]
    got = httpx.get(f"{service.url}/v1/plans/{plan}")
    client = client_of(server.url, tmp_path / "c", service.public_key)
    for replayed in (other, got):
        changes.append(lambda response, replayed=replayed: (dict(replayed.headers), replayed.content))
        with pytest.raises(Untrusted, match="belongs to another request"):
            client.resolve(REQUEST)


def test_a_tampered_binary_is_not_taken(
    service: Served, between: tuple[PlanServer, list[Change]], tmp_path: Path
) -> None:
    server, changes = between
    client = client_of(server.url, tmp_path / "c", service.public_key)
    changes.append(replaced(b"\x7fELF", b"\x7fELG"))
    with pytest.raises(BadAnswer, match="does not hash to its name"):
        client.binary(sha(BINARY))
    assert not list((tmp_path / "c").rglob("*"))


def test_a_key_that_signs_something_else_than_the_server_is_of_no_use(service: Served, tmp_path: Path) -> None:
    other = open_key(tmp_path / "other.pem")
    with pytest.raises(Untrusted, match=f"these are trusted: {other.id}"):
        client_of(service.url, tmp_path / "c", other.public).resolve(REQUEST)
    assert isinstance(client_of(service.url, tmp_path / "c", other.public, service.public_key).resolve(REQUEST), Answer)


def test_kept_answers_are_checked_again_when_they_are_read(
    service: Served, between: tuple[PlanServer, list[Change]], tmp_path: Path
) -> None:
    server, _ = between
    other = open_key(tmp_path / "other.pem")
    client_of(server.url, tmp_path / "c", service.public_key).resolve(REQUEST)
    server.respond = lambda asked: ()
    assert isinstance(client_of(server.url, tmp_path / "c", service.public_key).resolve(REQUEST), Answer)
    rotated = client_of(server.url, tmp_path / "c", other.public)
    with pytest.raises(ServerAbsent):
        rotated.resolve(REQUEST)
    assert any("a kept answer is not used: the answer is signed by key" in text for text in rotated.problems)
    assert isinstance(client_of(server.url, tmp_path / "c", other.public, service.public_key).resolve(REQUEST), Answer)


def test_what_was_kept_without_a_check_does_not_pass_one(
    service: Served, between: tuple[PlanServer, list[Change]], tmp_path: Path
) -> None:
    server, changes = between
    changes.append(FORGED["stripped"][0])
    assert isinstance(client_of(server.url, tmp_path / "c").resolve(REQUEST), Answer), "loopback, without a key"
    server.respond = lambda asked: ()
    with pytest.raises(ServerAbsent):
        client_of(server.url, tmp_path / "c", service.public_key).resolve(REQUEST)
    assert isinstance(client_of(server.url, tmp_path / "c").resolve(REQUEST), Answer)


OFF_LOOPBACK = ["http://planner:8080", "http://192.168.1.7", "https://plans.example.com/x", "http://127.0.0.1.example.com",
                "http://[fe80::1]:80", "http://localhost.example.com", "http://0.0.0.0:1"]  # fmt: skip


@pytest.mark.parametrize("url", OFF_LOOPBACK)
def test_off_loopback_a_key_is_needed(url: str, service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSEPLAN_SERVER_KEY", raising=False)
    with pytest.raises(Untrusted, match="there is none: give server_keys or FUSEPLAN_SERVER_KEY"):
        PlanClient(url)
    PlanClient(url, server_keys=[service.public_key])
    PlanClient(url, signed=False)
    monkeypatch.setenv("FUSEPLAN_SERVER_KEY", f" {service.public_key} ,")
    PlanClient(url)
    monkeypatch.setenv("FUSEPLAN_SERVER_KEY", "a key")
    with pytest.raises(Untrusted, match="expected a key of 32 bytes in base64"):
        PlanClient(url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "http://127.8.8.8"])
def test_on_loopback_it_is_for_the_user_to_say(url: str, service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSEPLAN_SERVER_KEY", raising=False)
    PlanClient(url)
    with pytest.raises(Untrusted):
        PlanClient(url, signed=True)
    assert PlanClient(url, server_keys=[service.public_key])._session._trust.is_on
    assert not PlanClient(url, server_keys=[service.public_key], signed=False)._session._trust.is_on


def test_off_loopback_nothing_unsigned_is_taken(
    service: Served, between: tuple[PlanServer, list[Change]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, changes = between
    monkeypatch.setattr(trust_module, "is_loopback", lambda host: False)
    client = PlanClient(server.url, limits=LIMITS, cache=tmp_path / "c", server_keys=[service.public_key])
    assert isinstance(client.resolve(REQUEST), Answer)
    changes.append(FORGED["stripped"][0])
    with pytest.raises(Untrusted, match="is not signed"):
        client.resolve({**REQUEST, "seconds": 1.0})


def test_without_the_package_that_checks_nothing_is_taken(
    service: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fuseplan_client import signatures

    def absent(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(signatures.importlib, "import_module", absent)
    with pytest.raises(Untrusted, match="pip install 'fuseplan-client"):
        client_of(service.url, tmp_path / "c", service.public_key).resolve(REQUEST)
    assert isinstance(client_of(service.url, tmp_path / "c").resolve(REQUEST), Answer)


@pytest.mark.parametrize("text", ["", "x", "A" * 43, "A" * 45, base64.b64encode(bytes(31)).decode(), "é", "-----BEGIN"])
def test_texts_that_are_no_keys_are_refused(text: str) -> None:
    with pytest.raises(SignatureError, match="expected a key of 32 bytes"):
        TrustedKeys([text])


def test_the_client_names_the_header_and_the_path_as_the_service_does(service: Served) -> None:
    response = httpx.post(service.url + session_module.RESOLVE, json=REQUEST)
    assert session_module.SIGNATURE in response.headers
