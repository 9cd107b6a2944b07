"""Defines stream cuts, one offset per segment of a stream, and packs them in Pravega's two forms.

See docs/wire-protocol.md 6.5.

A cut says nothing about whether its segments belong together; that is the controller's to check.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from dataclasses import dataclass, field
from typing import Final

from pravega_common import names
from pravega_common.compact_numbers import (
    ByteReader,
    read_compact_int,
    read_compact_long,
    read_compact_signed_long,
    write_compact_int,
    write_compact_long,
    write_compact_signed_long,
)
from pravega_common.errors import DataCorruption, InvalidArgument
from pravega_common.model.segments import SegmentOffsets

UNBOUNDED_TEXT: Final = "UNBOUNDED"
text_bytes_max: Final = 8 * 1024 * 1024
"""Largest decompressed text form that is read, in bytes: about 200,000 segments."""

# Fixed, with no time and an unknown operating system, so that equal cuts have equal texts (also to Java's).
_GZIP_HEADER: Final = bytes.fromhex("1f8b08000000000000ff")
_BINARY_PREFIX = struct.Struct(">BBBBi")


@dataclass(frozen=True)
class StreamCut:
    """A position in a stream: one offset per segment. Without offsets it is unbounded, at either end."""

    scope: str = ""
    stream: str = ""
    offsets: SegmentOffsets = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", dict(self.offsets))

    def __hash__(self) -> int:
        return hash((self.scope, self.stream, frozenset(self.offsets.items())))

    def __str__(self) -> str:
        if self.is_unbounded:
            return UNBOUNDED_TEXT
        cut = ", ".join(f"{identifier}={offset}" for identifier, offset in sorted(self.offsets.items()))
        return f"{self.scoped_stream}:{cut}"

    @property
    def is_unbounded(self) -> bool:
        return not self.offsets

    @property
    def scoped_stream(self) -> str:
        return names.scoped_name(self.scope, self.stream)

    def as_text(self) -> str:
        """Pravega's text form: gzip and Base64 of ``0:scope/stream:numbers:epochs:offsets``, or ``UNBOUNDED``."""
        if self.is_unbounded:
            return UNBOUNDED_TEXT
        ordered = sorted(self.offsets.items())
        lists = (
            [names.segment_number(identifier) for identifier, _ in ordered],
            [names.segment_epoch(identifier) for identifier, _ in ordered],
            [offset for _, offset in ordered],
        )
        plain = ":".join(("0", self.scoped_stream, *(",".join(map(str, values)) for values in lists)))
        return base64.b64encode(_gzip(plain.encode())).decode("ascii")

    @classmethod
    def from_text(cls, text: str) -> StreamCut:
        """The cut of a text form; ``InvalidArgument`` names what is wrong with it."""
        if text == UNBOUNDED_TEXT:
            return UNBOUNDED
        parts = _gunzip(text).split(":")
        if len(parts) != 5 or parts[0] != "0":
            raise InvalidArgument(f"stream cut text has {len(parts)} parts and version {parts[0]!r}, must be 5 and '0'")
        scope, stream = names.split_scoped_name(parts[1])
        try:
            numbers, epochs, offsets = ([int(item) for item in part.split(",")] for part in parts[2:])
        except ValueError as error:
            raise InvalidArgument(
                f"stream cut text of {parts[1]} holds something that is not a number: {error}"
            ) from error
        if not len(numbers) == len(epochs) == len(offsets):
            raise InvalidArgument(
                f"stream cut text of {parts[1]} lists {len(numbers)} numbers, "
                f"{len(epochs)} epochs and {len(offsets)} offsets"
            )
        identifiers = map(names.segment_id, numbers, epochs)
        return cls(scope, stream, dict(zip(identifiers, offsets, strict=True)))

    def to_bytes(self) -> bytes:
        """Pravega's binary form, revision 0 of version 1; empty for an unbounded cut."""
        if self.is_unbounded:
            return b""
        scoped = self.scoped_stream.encode()
        body = bytearray(struct.pack(">H", len(scoped)) + scoped + write_compact_int(len(self.offsets)))
        for identifier, offset in sorted(self.offsets.items()):
            body += write_compact_long(identifier) + write_compact_signed_long(offset)
        return _BINARY_PREFIX.pack(0, 1, 1, 0, len(body)) + bytes(body)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> StreamCut:
        """The cut of a binary form of version 0 or 1; ``DataCorruption`` for other bytes."""
        if len(data) == 0:
            return UNBOUNDED
        if len(data) < _BINARY_PREFIX.size:
            raise DataCorruption(f"stream cut of {len(data)} bytes is shorter than its header")
        kind, version, revisions, revision, length = _BINARY_PREFIX.unpack_from(data)
        if kind != 0 or version > 1 or revisions < 1 or revision != 0:
            raise DataCorruption(f"stream cut of format {kind}, version {version}, revision {revision} is not known")
        if not 0 <= length <= len(data) - _BINARY_PREFIX.size:
            raise DataCorruption(f"stream cut body of {length} bytes in {len(data) - _BINARY_PREFIX.size}")
        reader = ByteReader(memoryview(data)[: _BINARY_PREFIX.size + length], _BINARY_PREFIX.size)
        try:
            scope, stream = names.split_scoped_name(reader.take(reader.number(2)).decode())
        except (UnicodeDecodeError, InvalidArgument) as error:
            raise DataCorruption(f"stream cut without a stream name: {error}") from error
        read_offset = read_compact_signed_long if version else read_compact_long
        count = read_compact_int(reader)
        return cls(scope, stream, {read_compact_long(reader): read_offset(reader) for _ in range(count)})


UNBOUNDED: Final = StreamCut()
"""The head of a stream as a start, its tail as an end."""


def _gzip(plain: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    body = packer.compress(plain) + packer.flush()
    return _GZIP_HEADER + body + struct.pack("<II", zlib.crc32(plain), len(plain) & 0xFFFFFFFF)


def _gunzip(text: str) -> str:
    try:
        unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        plain = unpacker.decompress(base64.b64decode(text, validate=True), text_bytes_max)
        if unpacker.unconsumed_tail:
            raise InvalidArgument(f"stream cut text is larger than {text_bytes_max} bytes")
        if not unpacker.eof:
            raise InvalidArgument(f"stream cut text {text[:40]!r} ends too early")
        return plain.decode()
    except (binascii.Error, zlib.error, ValueError) as error:
        raise InvalidArgument(f"stream cut text {text[:40]!r} is not a Base64 of a gzip: {error}") from error
