"""The object cache: content-addressed, and never a wrong answer."""

import hashlib
import os
import threading
from pathlib import Path

import pytest

from codegen.sandbox.object_cache import CacheError, ObjectCache


@pytest.fixture
def cache(tmp_path: Path) -> ObjectCache:
    return ObjectCache(tmp_path / "cache")


def test_objects_come_back_by_their_digest(cache: ObjectCache) -> None:
    sha = cache.put(b"kernel")
    assert sha == hashlib.sha256(b"kernel").hexdigest()
    assert cache.get(sha) == b"kernel"
    path = cache.path(sha)
    assert path is not None
    assert path.read_bytes() == b"kernel"
    assert ObjectCache(cache.folder).get(sha) == b"kernel"
    assert cache.get(hashlib.sha256(b"other").hexdigest()) is None


def test_a_damaged_object_is_a_miss_and_can_be_put_again(cache: ObjectCache) -> None:
    sha = cache.put(b"kernel")
    path = cache.path(sha)
    assert path is not None
    path.write_bytes(b"kernal")
    fresh = ObjectCache(cache.folder)
    assert fresh.path(sha) is None
    assert fresh.get(sha) is None
    assert fresh.put(b"kernel") == sha
    assert fresh.get(sha) == b"kernel"


def test_a_damaged_memo_is_a_miss(cache: ObjectCache) -> None:
    cache.remember("key", "value")
    assert cache.recall("key") == "value"
    assert cache.recall("another") is None
    (file,) = (cache.folder / "memo").glob("*/*")
    file.write_bytes(file.read_bytes().replace(b"value", b"valuf"))
    assert cache.recall("key") is None
    cache.remember("key", "two\nlines")
    assert cache.recall("key") == "two\nlines"


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 64 + "/"])
def test_only_digests_name_objects(cache: ObjectCache, name: str) -> None:
    with pytest.raises(ValueError, match="not a sha256"):
        cache.get(name)


def test_prune_removes_the_longest_unused(cache: ObjectCache) -> None:
    shas = [cache.put(bytes([i]) * 1000) for i in range(4)]
    for age, sha in enumerate(shas):
        path = cache.path(sha)
        assert path is not None
        os.utime(path, (1000 + age, 1000 + age))
    cache.path(shas[0])  # used just now
    assert cache.prune(2000) == 2000
    assert [cache.get(sha) is not None for sha in shas] == [True, False, False, True]
    assert cache.size_bytes() == 2000


def test_writers_do_not_disturb_each_other(cache: ObjectCache) -> None:
    datas = [bytes([i]) * 50_000 for i in range(8)] * 4
    threads = [threading.Thread(target=cache.put, args=(data,)) for data in datas]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(cache.get(hashlib.sha256(data).hexdigest()) == data for data in datas)
    assert not list(cache.folder.rglob(".new-*"))


def test_a_folder_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="cannot be made"):
        ObjectCache(tmp_path / "file" / "cache")
