"""Beginnings of keys that people see: long enough to tell them apart."""

from service.wording.key_prefixes import CANDIDATES, KEY_DIGITS, several, told_apart

A = "3f2a" + "0" * 60


def test_as_many_digits_as_tell_all_apart() -> None:
    assert told_apart([]) == told_apart([A]) == told_apart([A, A]) == KEY_DIGITS
    assert told_apart([A, "4" + A[1:]]) == KEY_DIGITS
    keys = [A, A[:20] + "1" + A[21:], "f" * 64, A[:15] + "2" + A[16:]]
    digits = told_apart(keys)
    assert digits == 21
    assert len({key[:digits] for key in keys}) == len(keys)


def test_candidates_are_listed_as_far_as_there_are_few() -> None:
    other = A[:30] + "1" + A[31:]
    assert several("3f2a", [A, other], "plans") == (
        f"3f2a: 2 plans begin with it: {A[:31]}, {other[:31]}; give more digits"
    )
    many = [f"3f2a{i:x}" + "0" * 59 for i in range(CANDIDATES + 1)]
    text = several("3f2a", many, "plans")
    assert text.startswith(f"3f2a: more than {CANDIDATES} plans begin with it: {many[0][:12]}, ")
    assert many[CANDIDATES - 1][:12] in text
    assert many[CANDIDATES][:12] not in text
    assert text.endswith(", ...; give more digits")
