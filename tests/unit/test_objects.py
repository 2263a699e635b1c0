"""Compiled files that tests keep: one is made for each content, whoever asks for it."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from testing.objects import Objects, headers, program


def test_one_is_made_for_each_content(tmp_path: Path) -> None:
    made: list[str] = []
    begun = threading.Barrier(8)

    def ask(part: str) -> bytes | None:
        def make() -> bytes:
            made.append(part)
            return part.encode()

        begun.wait()
        return Objects(tmp_path).get(["kernel", part], make)

    asked = ["a", "b"] * 4
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, asked)) == [part.encode() for part in asked]
    assert sorted(made) == ["a", "b"]


def test_what_failed_is_made_again(tmp_path: Path) -> None:
    kept = Objects(tmp_path)
    assert kept.get(["x"], lambda: None) is None
    assert kept.get(["x"], lambda: b"1") == b"1"
    assert kept.get(["x"], lambda: b"2") == b"1"
    assert kept.get(["x", ""], lambda: b"2") == b"2", "parts are told apart"


def test_the_least_recently_used_are_removed(tmp_path: Path) -> None:
    kept = Objects(tmp_path)
    for n in range(4):
        kept.get([str(n)], lambda: bytes(100))
    for age, file in enumerate(sorted(tmp_path.glob("??/*"))):
        os.utime(file, (1000 - age, 1000 - age))
    oldest = sorted(tmp_path.glob("??/*"))[2:]
    kept.trim(250)
    assert not any(file.exists() for file in oldest)
    assert len(list(tmp_path.glob("??/*"))) == 2


def test_the_files_of_headers_are_part_of_a_key(tmp_path: Path) -> None:
    for name, text in (("a", "1"), ("b", "1"), ("c", "2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "vec.h").write_text(text)
    a, b, c = (headers(["-O1", f"-I{tmp_path / name}"]) for name in "abc")
    assert a == b != c


def test_a_program_in_a_temporary_folder_is_nobody(tmp_path: Path) -> None:
    fake = tmp_path / "g++"
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    assert program([str(fake)]) is None
    assert program(["no-such-compiler"]) is None
    assert program([sys.executable, "-m", "ziglang"]) is not None
