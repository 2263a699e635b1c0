"""The cache on disk: offline, damaged, full, read-only, in the hands of others, shared by threads and processes."""

import errno
import multiprocessing
import os
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fuseplan_client.server import (
    Answer,
    BadArgument,
    Pending,
    PlanClient,
    ProblemAnswer,
    ServerAbsent,
    files,
)
from fuseplan_client.server.cache import Kept, PlanCache, answer_digest, default_folder

from testing.plan_server import (
    BINARY,
    PlanServer,
    answer,
    http,
    patient,
    plan,
    plan_server,
    problem,
    sha,
    unused_url,
)

QUICK = patient(attempts=2)
REQUEST = {"graph_key": "0" * 64}
OPERATION = {"id": "abc", "state": "queued", "done": False}


@pytest.fixture
def server() -> Iterator[PlanServer]:
    """A server that has one plan and its binary."""
    with plan_server(lambda a: (http(answer() if a.method == "POST" else BINARY),)) as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def kept_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file())


def stop(server: PlanServer) -> None:
    """From now on the server closes every connection without an answer."""
    server.respond = lambda asked: ()


def test_with_the_server_absent_a_plan_and_its_binaries_come_from_the_cache(server: PlanServer, folder: Path) -> None:
    client = PlanClient(server.url, limits=QUICK, cache=folder)
    first = client.resolve(REQUEST)
    assert isinstance(first, Answer)
    assert client.binary(first.binaries[0]) == BINARY
    assert (first.kept, client.problems) == (False, ())
    stop(server)
    for other in (client, PlanClient(server.url, limits=QUICK, cache=folder)):
        again = other.resolve(REQUEST)
        assert isinstance(again, Answer)
        assert again.kept
        assert (again.plan_body, again.names, again.plan_key) == (first.plan_body, first.names, first.plan_key)
        assert other.binary(again.binaries[0]) == BINARY
        assert any("a kept answer was used" in text for text in other.problems)
        with pytest.raises(ServerAbsent):
            other.resolve({"graph_key": "1" * 64})


@pytest.mark.parametrize(
    "reply",
    [problem(503), problem(500, "internal"), problem(429), http(b"<html>", media_type="text/html"), http(b"", 302)],
    ids=["503", "500", "429", "html", "302"],
)
def test_a_broken_server_counts_as_an_absent_one(server: PlanServer, folder: Path, reply: bytes) -> None:
    client = PlanClient(server.url, limits=QUICK, cache=folder)
    client.resolve(REQUEST)
    server.respond = lambda asked: (reply,)
    found = client.resolve(REQUEST)
    assert isinstance(found, Answer)
    assert found.kept


def test_what_the_server_says_of_a_request_counts_more_than_what_is_kept(server: PlanServer, folder: Path) -> None:
    client = PlanClient(server.url, limits=QUICK, cache=folder)
    client.resolve(REQUEST)
    server.respond = lambda asked: (problem(422, "bad-graph"),)
    with pytest.raises(ProblemAnswer, match="422"):
        client.resolve(REQUEST)
    server.respond = lambda asked: (http({"operation": OPERATION}, 202),)
    assert isinstance(client.resolve(REQUEST), Pending)
    server.respond = lambda asked: (http(answer(plan(note="newer"))),)
    newer = client.resolve(REQUEST)
    stop(server)
    offline = client.resolve(REQUEST)
    assert isinstance(newer, Answer)
    assert isinstance(offline, Answer)
    assert offline.plan == newer.plan == plan(note="newer")


def test_a_fresh_answer_is_given_without_a_question(server: PlanServer, folder: Path) -> None:
    client = PlanClient(server.url, limits=QUICK, cache=folder)
    client.resolve(REQUEST, fresh_s=60.0)
    found = client.resolve(REQUEST, fresh_s=60.0)
    assert isinstance(found, Answer)
    assert found.kept
    assert len(server.asked) == 1
    client.resolve(REQUEST, fresh_s=60.0, again=True)
    client.resolve(REQUEST)
    assert len(server.asked) == 3
    (kept,) = (folder / "answers").iterdir()
    name = kept.name
    cache = PlanCache(folder, 2**30, pytest.fail)
    for stored in (time.time() - 61.0, time.time() + 3600.0):  # and a clock that was set back since
        old = cache.answer(name)
        assert old is not None
        cache.keep_answer(name, Kept(old.body, old.signature, stored))
        before = len(server.asked)
        client.resolve(REQUEST, fresh_s=60.0)
        assert len(server.asked) == before + 1


def test_answers_are_kept_by_server_and_request(server: PlanServer, folder: Path) -> None:
    client = PlanClient(server.url, limits=QUICK, cache=folder)
    client.resolve(REQUEST)
    with pytest.raises(ServerAbsent):
        PlanClient(unused_url(), limits=QUICK, cache=folder).resolve(REQUEST)
    names = {answer_digest(s, r) for s in ("http://a", "http://b") for r in (b"", b"x", b"http://a")}
    assert len(names) == 6


def damages(rng: random.Random) -> Iterator[Callable[[bytes], bytes]]:
    """Ways to damage a file, none of which leaves it as it is."""
    for _ in range(40):
        place, bit = rng.random(), 1 << rng.randrange(8)
        yield lambda d, place=place, bit=bit: d[: (i := int(place * len(d)))] + bytes((d[i] ^ bit,)) + d[i + 1 :]
        yield lambda d, place=place: d[: int(place * len(d))]
    yield lambda d: d + b"\n"
    yield lambda d: b""
    yield lambda d: d[::-1]


def test_a_damaged_entry_is_discarded_and_fetched_again(server: PlanServer, folder: Path) -> None:
    rng = random.Random(seed := random.SystemRandom().randrange(2**32))
    print(f"seed {seed}")
    client = PlanClient(server.url, limits=QUICK, cache=folder)
    found = client.resolve(REQUEST)
    assert isinstance(found, Answer)
    client.binary(sha(BINARY))
    (kept_answer,), (kept_binary,) = (list((folder / room).iterdir()) for room in ("answers", "binaries"))
    whole = kept_answer.read_bytes(), kept_binary.read_bytes()
    cache = PlanCache(folder, 2**30, lambda text: None)
    for damage in damages(rng):
        kept_answer.write_bytes(damage(whole[0]))
        assert cache.answer(kept_answer.name) is None
        assert not kept_answer.exists()
        kept_binary.write_bytes(damage(whole[1]))
        before = len(server.asked)
        assert client.binary(sha(BINARY)) == BINARY
        assert len(server.asked) == before + 1
        assert kept_binary.read_bytes() == whole[1]
    assert any("damaged" in text for text in client.problems)
    stop(server)
    with pytest.raises(ServerAbsent):
        client.resolve(REQUEST)


def test_an_answer_under_the_name_of_another_request_is_whole_and_the_other_ones(folder: Path) -> None:
    """The checksum is for damage; that nobody else puts files there is for the folder's owner to see to."""
    cache = PlanCache(folder, 2**30, pytest.fail)
    cache.keep_answer(sha(b"1"), Kept(b"body", "signature", 5.0))
    assert cache.answer(sha(b"1")) == Kept(b"body", "signature", 5.0)
    assert cache.answer(sha(b"2")) is None


def test_what_was_used_longest_ago_goes_first_and_the_bytes_stay_bounded(folder: Path) -> None:
    cache = PlanCache(folder, 100_000, pytest.fail)
    contents = [bytes([i]) * 10_000 for i in range(30)]
    for i, content in enumerate(contents):
        cache.keep_binary(sha(content), content)
        assert cache.binary(sha(contents[0])) == contents[0], f"used all the time, and gone behind {i}"
        assert sum(p.stat().st_size for p in kept_files(folder)) <= 100_000
    left = [i for i, content in enumerate(contents) if cache.binary(sha(content)) is not None]
    assert left[0] == 0
    assert left[1:] == list(range(left[1], 30))
    assert len(left) >= 8


def test_what_is_too_large_for_the_cache_is_not_kept_and_removes_nothing(folder: Path) -> None:
    told: list[str] = []
    cache = PlanCache(folder, 1000, told.append)
    cache.keep_binary(sha(b"small"), b"small")
    cache.keep_binary(sha(bytes(251)), bytes(251))
    assert cache.binary(sha(b"small")) == b"small"
    assert cache.binary(sha(bytes(251))) is None
    assert "not kept: 251 bytes" in told[0]


def fail_to_write(monkeypatch: pytest.MonkeyPatch, number: int, after: int) -> None:
    """Every write fails after so many bytes of a file."""
    real, written = os.write, dict[int, int]()

    def write(descriptor: int, data: Any) -> int:
        if os.readlink(f"/proc/self/fd/{descriptor}").rpartition("/")[2].startswith(files.TEMPORARY):
            room = after - written.get(descriptor, 0)
            if room <= 0:
                written.pop(descriptor, None)
                raise OSError(number, os.strerror(number))
            data = bytes(data)[:room]
            written[descriptor] = written.get(descriptor, 0) + len(data)
        return real(descriptor, data)

    monkeypatch.setattr(files.os, "write", write)


@pytest.mark.parametrize("after", [0, 1, 100])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_on_a_full_disk_the_client_goes_on_without_and_says_so(
    server: PlanServer, folder: Path, monkeypatch: pytest.MonkeyPatch, number: int, after: int
) -> None:
    client = PlanClient(server.url, limits=QUICK, cache=folder)
    fail_to_write(monkeypatch, number, after)
    for _ in range(2):
        found = client.resolve(REQUEST)
        assert isinstance(found, Answer)
        assert client.binary(found.binaries[0]) == BINARY
    assert kept_files(folder) == []
    assert client.problems == (f"the cache is not written to: {os.strerror(number)}",)
    monkeypatch.undo()
    client.resolve(REQUEST)
    assert len(kept_files(folder)) == 1


def _write_with_little_room(folder: Path, results: Any) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    told: list[str] = []
    PlanCache(folder, 2**30, told.append).keep_binary(sha(bytes(9000)), bytes(9000))
    results.put((told, [p.name for p in folder.rglob("*") if p.is_file()]))


def test_a_write_that_the_kernel_ends_in_the_middle_leaves_nothing(folder: Path) -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_write_with_little_room, args=(folder, results))
    child.start()
    told, left = results.get(timeout=30)
    child.join(30)
    assert left == []
    assert told == ["the cache is not written to: File too large"]


def test_a_cache_that_cannot_be_written_to_is_read(
    server: PlanServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = PlanClient(server.url, limits=QUICK, cache=folder)
    client.resolve(REQUEST)
    client.binary(sha(BINARY))
    real = os.open

    def open_(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return real(path, flags, *more, **named)

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(files.os, "open", open_)
    for name in ("utime", "unlink", "replace"):
        monkeypatch.setattr(files.os, name, refuse)
    client.resolve(REQUEST)
    assert any("Read-only file system" in text for text in client.problems)
    stop(server)
    found = client.resolve(REQUEST)
    assert isinstance(found, Answer)
    assert client.binary(found.binaries[0]) == BINARY


def test_a_folder_that_cannot_be_made_costs_the_cache_alone(server: PlanServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nothing/here")):
        client = PlanClient(server.url, limits=QUICK, cache=place)
        assert isinstance(client.resolve(REQUEST), Answer)
        assert client.binary(sha(BINARY)) == BINARY
        assert client.problems


def test_the_folder_is_the_users_own_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert default_folder() == Path(os.environ["XDG_CACHE_HOME"]) / "fuseplan-client"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_folder() == tmp_path / ".cache" / "fuseplan-client"


def test_problems_are_bounded(folder: Path) -> None:
    client = PlanClient(unused_url(), cache=folder, cache_bytes=1)
    for i in range(1000):
        client._session.problems.note(f"problem {i}")
        client._session.problems.note("the same again")
    assert len(client.problems) == 50
    assert client.problems[-1] == "problem 999"


def test_names_that_are_no_digests_reach_no_file(folder: Path) -> None:
    client = PlanClient(unused_url(), limits=QUICK, cache=folder)
    with pytest.raises(BadArgument):
        client.binary("../../../etc/passwd")
    assert not folder.exists()


def content(number: int) -> bytes:
    return number.to_bytes(4, "little") * random.Random(number).randrange(200, 2000)


def _work(folder: Path, seed: int, rounds: int, results: Any) -> None:
    """Puts and gets at random; whatever is read must be what its name says."""
    told: list[str] = []
    cache = PlanCache(folder, 60_000, told.append)
    rng, wrong = random.Random(seed), 0
    for _ in range(rounds):
        data = content(rng.randrange(40))
        if rng.random() < 0.5:
            cache.keep_binary(sha(data), data)
            cache.keep_answer(sha(data), Kept(data, "", 0.0))
        found, kept = cache.binary(sha(data)), cache.answer(sha(data))
        wrong += (found not in (None, data)) + (kept is not None and kept.body != data)
    results.put((wrong, told))


def test_processes_and_threads_that_share_a_cache_read_whole_entries_alone(folder: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    workers = [context.Process(target=_work, args=(folder, seed + i, 150, results)) for i in range(3)]
    for worker in workers:
        worker.start()
    own: list[tuple[int, list[str]]] = []

    class Own:
        put = staticmethod(own.append)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda i: _work(folder, seed + 10 + i, 50, Own), range(4)))
    outcomes = own + [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(30)
    assert outcomes == [(0, [])] * 7
    most = 60_000 * (1 + 7 / 16) + 4 * 8000
    assert sum(p.stat().st_size for p in kept_files(folder)) <= most
    assert not [p for p in kept_files(folder) if p.name.startswith(files.TEMPORARY)]


def _write_for_ever(folder: Path, ready: Any) -> None:
    cache = PlanCache(folder, 2**30, lambda text: None)
    ready.set()
    for i in range(10**9):
        data = content(i % 50)
        cache.keep_binary(sha(data), data)
        cache.keep_answer(sha(data), Kept(data, "", 0.0))


def test_writers_that_are_killed_leave_whole_entries_and_what_they_left_besides_is_removed_later(folder: Path) -> None:
    rng = random.Random(seed := random.SystemRandom().randrange(2**32))
    print(f"seed {seed}")
    context = multiprocessing.get_context("fork")
    for _ in range(6):
        ready = context.Event()
        writer = context.Process(target=_write_for_ever, args=(folder, ready))
        writer.start()
        ready.wait(30)
        time.sleep(rng.uniform(0.0, 0.02))
        writer.kill()
        writer.join(30)
    cache = PlanCache(folder, 2**30, pytest.fail)
    for i in range(50):
        data = content(i)
        assert cache.binary(sha(data)) in (None, data)
        kept = cache.answer(sha(data))
        assert kept is None or kept.body == data
    left = folder / "binaries" / f"{files.TEMPORARY}1-0"
    left.write_bytes(b"half")
    os.utime(left, (time.time() - 7200,) * 2)
    PlanCache(folder, 2**30, pytest.fail).keep_binary(sha(b"x"), b"x")
    assert not left.exists()
