"""Encodes Java's "modified UTF-8", which every string on the wire is in (docs/wire-protocol.md 1.3).

U+0000 is the two bytes ``C0 80``, a code point above U+FFFF is two three-byte surrogates. Plain UTF-8, which other
clients send, is the same for everything else, and is accepted for those too.
"""

from __future__ import annotations


def encode(text: str) -> bytes:
    """The bytes of a text; raises ``UnicodeEncodeError`` for a lone surrogate."""
    if text.isascii():
        raw = text.encode("ascii")
        return raw.replace(b"\0", b"\xc0\x80") if b"\0" in raw else raw
    units = text.encode("utf-16-be")
    split = "".join(chr(units[i] << 8 | units[i + 1]) for i in range(0, len(units), 2))
    return split.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")


def decode(raw: bytes) -> str:
    """The text of the bytes; raises ``UnicodeDecodeError`` for anything that is neither modified nor plain UTF-8."""
    if raw.isascii():
        return raw.decode("ascii")
    text = raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    if all(not 0xD800 <= ord(char) <= 0xDFFF for char in text):
        return text
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be")
