"""Parsing of 64-bit little-endian ELF object files, without a loader or an external tool.

The layout of sections and symbols is specified in the ELF chapter of the System V ABI.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from ...protocol import LoadError

_SHT_SYMTAB = 2
_SHF_WRITE, _SHF_ALLOC, _SHF_TLS = 1, 2, 0x400
_SHN_UNDEF, _SHN_COMMON = 0, 0xFFF2
_STT_TLS, _STT_GNU_IFUNC = 6, 10


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    flags: int
    offset: int
    size_bytes: int
    link: int
    entry_bytes: int


@dataclass(frozen=True, slots=True)
class _Symbol:
    name: str
    kind: int
    section: int
    size_bytes: int


@lru_cache(maxsize=4)
def undefined_symbols(object_bytes: bytes) -> tuple[str, ...]:
    """Return the undefined symbols of an object, sorted. Raise LoadError if the object is
    malformed."""
    with _broken_is_refused():
        sections = _sections(object_bytes)
        symbols = _symbols(object_bytes, sections)
        return tuple(sorted({s.name for s in symbols if s.section == _SHN_UNDEF and s.name}))


def writable_memory(object_bytes: bytes) -> str | None:
    """Return a description of the writable memory of an object, or None if it has none.

    Writable memory is data, thread-local data, or a symbol that a function resolves at run time.
    """
    with _broken_is_refused():
        sections = _sections(object_bytes)
        for section in sections:
            kept = section.flags & _SHF_ALLOC and section.flags & (_SHF_WRITE | _SHF_TLS)
            if kept and section.size_bytes:
                return f"{section.size_bytes} writable bytes in section {section.name}"
        for symbol in _symbols(object_bytes, sections):
            if symbol.section == _SHN_COMMON:
                return f"{symbol.size_bytes} writable bytes in the common symbol {symbol.name}"
            if symbol.kind in (_STT_TLS, _STT_GNU_IFUNC):
                return f"the symbol {symbol.name}, which is resolved at run time"
    return None


@contextmanager
def _broken_is_refused() -> Iterator[None]:
    try:
        yield
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise LoadError(f"a broken ELF object: {error}") from error


def _sections(data: bytes) -> list[_Section]:
    if data[:6] != b"\x7fELF\x02\x01":
        raise LoadError(f"not a 64-bit ELF object: starts with {data[:6]!r}")
    (sections_at,) = struct.unpack_from("<Q", data, 40)
    entry_bytes, count, names_in = struct.unpack_from("<HHH", data, 58)
    headers = [
        struct.unpack_from("<IIQQQQIIQQ", data, sections_at + i * entry_bytes) for i in range(count)
    ]
    names_at = headers[names_in][4]
    return [
        _Section(_string(data, names_at + name), kind, flags, offset, size, link, each)
        for name, kind, flags, _, offset, size, link, _, _, each in headers
    ]


def _symbols(data: bytes, sections: list[_Section]) -> Iterator[_Symbol]:
    for section in sections:
        if section.kind != _SHT_SYMTAB:
            continue
        strings_at = sections[section.link].offset
        end = section.offset + section.size_bytes
        for at in range(section.offset, end, section.entry_bytes):
            name, info, _, index, _, size = struct.unpack_from("<IBBHQQ", data, at)
            yield _Symbol(_string(data, strings_at + name), info & 15, index, size)


def _string(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()
