"""Symbol tables of compiled files: damaged ones say nothing rather than something wrong."""

import struct

from codegen.toolchain.elf import symbol_bytes, whole


def tiny_elf() -> bytes:
    """A file with one section of symbols (an undefined function, a variable, a function of 40 bytes) and their
    names."""
    names = b"\0puts\0table\0kernel\0"
    symbols = b"".join(
        struct.pack("<IBBHQQ", name, info, 0, section, 0, size)
        for name, info, section, size in ((0, 0, 0, 0), (1, 0x12, 0, 0), (6, 0x11, 1, 8), (12, 0x12, 1, 40))
    )
    at_names, at_symbols = 64, 64 + len(names)
    sections = (
        bytes(64)
        + struct.pack("<IIQQQQIIQQ", 0, 11, 0, 0, at_symbols, len(symbols), 2, 0, 0, 24)
        + struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, at_names, len(names), 0, 0, 0, 0)
    )
    ident = b"\x7fELF\x02\x01" + bytes(10)
    header = struct.pack("<16sHHIQQQIHHHHHH", ident, 3, 62, 1, 0, 0, at_symbols + len(symbols), 0, 64, 0, 0, 64, 3, 0)
    return header + names + symbols + sections


def test_functions_that_are_defined() -> None:
    assert symbol_bytes(tiny_elf()) == {"kernel": 40}


def test_what_is_no_elf_or_not_whole() -> None:
    elf = tiny_elf()
    for data in (b"", b"MZ", b"\x7fELF\x01\x01" + elf[6:], elf[:63], elf[:-1], elf[:64]):
        assert symbol_bytes(data) == {}


def test_damage_is_never_an_exception() -> None:
    elf = tiny_elf()
    for at in range(16, len(elf)):
        for byte in (0x00, 0x7F, 0xFF):
            symbol_bytes(elf[:at] + bytes([byte]) + elf[at + 1 :])


def with_program_headers() -> bytes:
    """A file that ends with its one program header, as cubins do."""
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01" + bytes(10), 2, 190, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0
    )
    return header + struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 0, 0, 8)


def test_a_byte_dropped_at_the_end_is_put_back() -> None:
    data = with_program_headers()
    assert whole(data) == data
    assert whole(data[:-1]) == data
    assert whole(data[:-56]) == data[:-56], "more is missing than a byte or two: left as it is"
    assert whole(b"no file of ours") == b"no file of ours"
