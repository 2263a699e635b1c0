"""Reading ELF files, shared libraries and cubins alike: sizes of functions, and bytes missing at the end."""

import struct

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB, _DYNSYM = 2, 11
_FUNCTION = 2
_ELF64_LITTLE = b"\x7fELF\x02\x01"


def symbol_bytes(data: bytes) -> dict[str, int]:
    """Bytes of machine code of each function that is defined in `data`, by symbol. Empty for what is no whole 64-bit
    little-endian ELF file."""
    if not data.startswith(_ELF64_LITTLE):
        return {}
    found: dict[str, int] = {}
    try:
        header = _HEADER.unpack_from(data)
        offset, size, count = header[6], header[11], header[12]
        sections: list[tuple[int, ...]] = [_SECTION.unpack_from(data, offset + i * size) for i in range(count)]
        for _, kind, _, _, start, length, link, _, _, entry_size in sections:
            if kind not in (_SYMTAB, _DYNSYM) or entry_size != _SYMBOL.size:
                continue
            names = sections[link][4]
            for at in range(start, start + length, entry_size):
                name, info, _, section, _, bytes_ = _SYMBOL.unpack_from(data, at)
                if info & 0xF == _FUNCTION and section:
                    found[_text(data, names + name)] = bytes_
    except (struct.error, IndexError, OverflowError, ValueError):
        return {}
    return found


def whole(data: bytes) -> bytes:
    """The file, with zeros for what is missing at the end of its program headers: CuPy's `getCUBIN` drops the last
    byte, which is the highest of an alignment. The driver does not mind; the disassembler rejects such a file."""
    if not data.startswith(_ELF64_LITTLE) or len(data) < _HEADER.size:
        return data
    header = _HEADER.unpack_from(data)
    offset, size, count = header[5], header[9], header[10]
    missing = offset + size * count - len(data)
    return data + bytes(missing) if 0 < missing < 8 else data


def _text(data: bytes, at: int) -> str:
    """The string that ends in a zero byte. Raises ValueError where none does."""
    return data[at : data.index(b"\0", at)].decode("ascii", "replace")
