"""Encodes and decodes the part of CBOR (RFC 8949) that records of a reader group use.

These are integers of up to 64 bits, text, byte strings, arrays, maps and null, all of definite length. A map whose
keys are maps themselves, as the Rust client writes them, decodes to a dict with ``Fields`` as its keys.
"""

from __future__ import annotations

from typing import Final

from pravega_common.errors import DataCorruption, InvalidArgument

depth_max: Final = 16
"""Arrays and maps within each other."""

_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _SIMPLE = 0, 1, 2, 3, 4, 5, 7
_FALSE, _TRUE, _NULL = 20, 21, 22
_SIZES: Final = {24: 1, 25: 2, 26: 4, 27: 8}


class Fields(tuple[tuple[str, object], ...]):
    """A map with text keys that is itself a key of a map: its pairs, in their order."""

    __slots__ = ()


def encode(value: object) -> bytes:
    """The bytes of a value made of None, bool, int, str, bytes, list, tuple, dict and ``Fields``."""
    parts: list[bytes] = []
    _encode(value, parts)
    return b"".join(parts)


def _encode(value: object, parts: list[bytes]) -> None:
    match value:
        case None:
            parts.append(_head(_SIMPLE, _NULL))
        case bool():
            parts.append(_head(_SIMPLE, _TRUE if value else _FALSE))
        case int():
            parts.append(_head(_UNSIGNED, value) if value >= 0 else _head(_NEGATIVE, -1 - value))
        case str():
            text = value.encode()
            parts += (_head(_TEXT, len(text)), text)
        case bytes():
            parts += (_head(_BYTES, len(value)), value)
        case dict() | Fields():
            pairs = list(value.items()) if isinstance(value, dict) else list(value)
            parts.append(_head(_MAP, len(pairs)))
            for key, item in pairs:
                _encode(key, parts)
                _encode(item, parts)
        case list() | tuple():
            parts.append(_head(_ARRAY, len(value)))
            for item in value:
                _encode(item, parts)
        case _:
            raise InvalidArgument(f"{type(value).__name__} has no form in CBOR here")


def _head(major: int, number: int) -> bytes:
    if number < 24:
        return bytes((major << 5 | number,))
    for code, size in _SIZES.items():
        if number < 1 << 8 * size:
            return bytes((major << 5 | code,)) + number.to_bytes(size, "big")
    raise InvalidArgument(f"{number} does not fit 64 bits")


def decode(data: bytes | memoryview) -> object:
    """The one value that ``data`` holds; ``DataCorruption`` for anything else."""
    reader = _Reader(bytes(data))
    value = reader.value(0)
    if reader.position != len(reader.data):
        raise DataCorruption(f"{len(reader.data) - reader.position} bytes follow a CBOR value")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def value(self, depth: int) -> object:
        if depth > depth_max:
            raise DataCorruption(f"CBOR with more than {depth_max} arrays and maps within each other")
        major, number = self._head()
        match major:
            case 0:
                return number
            case 1:
                return -1 - number
            case 2:
                return self._take(number)
            case 3:
                return self._text(number)
            case 4:
                return [self.value(depth + 1) for _ in range(self._count(number))]
            case 5:
                return {_key(self.value(depth + 1)): self.value(depth + 1) for _ in range(self._count(number))}
            case 7 if number in (_FALSE, _TRUE):
                return number == _TRUE
            case 7 if number == _NULL:
                return None
        raise DataCorruption(f"CBOR of kind {major} with {number} is not used in reader groups")

    def _head(self) -> tuple[int, int]:
        first = self._take(1)[0]
        major, number = first >> 5, first & 31
        if number < 24:
            return major, number
        if number not in _SIZES or major == _SIMPLE:
            raise DataCorruption(f"CBOR head 0x{first:02x} is not used in reader groups")
        return major, int.from_bytes(self._take(_SIZES[number]), "big")

    def _take(self, count: int) -> bytes:
        taken = self.data[self.position : self.position + count]
        if len(taken) < count:
            raise DataCorruption(f"CBOR ends {count - len(taken)} bytes too early")
        self.position += count
        return taken

    def _count(self, number: int) -> int:
        """Every item takes a byte at least, so a count beyond the bytes that are left is damage."""
        if number > len(self.data) - self.position:
            raise DataCorruption(f"CBOR announces {number} items in {len(self.data) - self.position} bytes")
        return number

    def _text(self, length: int) -> str:
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise DataCorruption(f"CBOR text is not UTF-8: {error}") from error


def _key(value: object) -> object:
    """``value`` as a key of a dict."""
    if isinstance(value, dict):
        return Fields((str(name), _key(item)) for name, item in value.items())
    if isinstance(value, list):
        return tuple(_key(item) for item in value)
    return value
