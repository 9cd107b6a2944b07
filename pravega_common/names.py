"""Makes, checks and parses the names and ids of scopes, streams, segments, transactions and tables.

Every rule about the text of a name is here and nowhere else (docs/wire-protocol.md 6.1, 6.2;
docs/controller-api.md 10). Ids: a segment id is ``(epoch << 32) | number``; transaction ids are ``uuid.UUID``.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pravega_common.errors import InvalidArgument

SYSTEM_SCOPE: Final = "_system"
REQUEST_STREAM: Final = "_requeststream"
"""The stream of the system scope in which stores report traffic to the controllers."""
MARK_PREFIX: Final = "_MARK"
READER_GROUP_PREFIX: Final = "_RG"
TABLE_SUFFIX: Final = "_kvtable"
EPOCH_DELIMITER: Final = ".#epoch."
TRANSACTION_DELIMITER: Final = "#transaction."
TRANSIENT_DELIMITER: Final = "#transient."
INDEX_SUFFIX: Final = "#index"

name_chars_max: Final = 255
"""Longest name of a scope or an internal stream."""
user_name_chars_max: Final = 250
"""Longest name of a stream, key-value table, reader group, reader or writer that a user may choose."""
stored_name_chars_max: Final = name_chars_max + len(MARK_PREFIX)
"""Longest name that anything is kept under: the mark stream's of a stream with the longest name."""
transaction_id_chars: Final = 32
segment_number_max: Final = 2**31 - 1
segments_per_stream_max: Final = 4_500
"""Open at the same time, on our controller. The records of an epoch and of a scale take up to 168 bytes a segment and
must fit one table value (1,040,384 bytes); the step of a rolling commit that writes two keys a segment must fit one
update of a table (10,000 keys)."""
epoch_max: Final = 2**31 - 1
segment_id_max: Final = epoch_max << 32 | segment_number_max

_USER_NAME = re.compile(r"[A-Za-z0-9.\-]+")
_INTERNAL_NAME = re.compile(r"_?[A-Za-z0-9.\-]+")


def _validated(kind: str, name: str, pattern: re.Pattern[str], chars_max: int, allowed: str) -> str:
    if pattern.fullmatch(name) is None:
        raise InvalidArgument(f"{kind} name {name!r} may only contain {allowed}")
    if len(name) > chars_max:
        raise InvalidArgument(f"{kind} name of {len(name)} characters is longer than {chars_max}: {name[:40]!r}…")
    return name


_CHARACTERS: Final = "the letters a to z and A to Z, digits, '.' and '-'"
_USER_ALLOWED: Final = f"{_CHARACTERS}, and must not be empty"
_INTERNAL_ALLOWED: Final = f"{_CHARACTERS} after one optional leading '_', and must not be empty"
SCOPE_NAME_RULE: Final = f"a name of a scope has 1 to {name_chars_max} characters, of {_CHARACTERS}"
USER_NAME_RULE: Final = f"such a name has 1 to {user_name_chars_max} characters, of {_CHARACTERS}"
"""What a controller does not tell when it refuses the name of a stream, table or reader group."""


def is_possible_name(name: str) -> bool:
    """Whether a name has a length that anything can have. One that has not is nowhere, and is not to be asked for."""
    return 0 < len(name) <= stored_name_chars_max


def validate_scope_name(name: str) -> str:
    """The name, if a scope may have it, internal ones included; else ``InvalidArgument``."""
    return _validated("scope", name, _INTERNAL_NAME, name_chars_max, _INTERNAL_ALLOWED)


def validate_user_scope_name(name: str) -> str:
    """The name, if a user may give it to a scope; else ``InvalidArgument``."""
    return _validated("scope", name, _USER_NAME, name_chars_max, _USER_ALLOWED)


def validate_stream_name(name: str) -> str:
    """The name, if a stream may have it, internal ones included; else ``InvalidArgument``."""
    return _validated("stream", name, _INTERNAL_NAME, name_chars_max, _INTERNAL_ALLOWED)


def validate_user_name(name: str, kind: str = "stream") -> str:
    """The name, if a user may give it to a stream, table, reader group, reader or writer; ``kind`` is for the error."""
    return _validated(kind, name, _USER_NAME, user_name_chars_max, _USER_ALLOWED)


def scoped_name(scope: str, stream: str) -> str:
    """``scope/stream``."""
    return f"{scope}/{stream}"


def split_scoped_name(name: str) -> tuple[str, str]:
    """Scope and stream of ``scope/stream``; ``InvalidArgument`` for anything else."""
    scope, slash, stream = name.partition("/")
    if not slash or not scope or not stream or "/" in stream:
        raise InvalidArgument(f"{name!r} is not of the form scope/stream")
    return scope, stream


def is_internal_scope(scope: str) -> bool:
    return scope.startswith("_")


def is_internal_stream(scope: str, stream: str) -> bool:
    """Whether a stream belongs to the system: mark and reader-group streams, and everything in an internal scope."""
    return is_internal_scope(scope) or stream.startswith("_")


def mark_stream(stream: str) -> str:
    """The stream that carries the watermarks of a stream, in the same scope."""
    return MARK_PREFIX + stream


def reader_group_stream(group: str) -> str:
    """The stream that carries the state of a reader group, in the group's scope."""
    return READER_GROUP_PREFIX + group


def table_stream(table: str) -> str:
    """The name that stands for a key-value table in its segments' names."""
    return table + TABLE_SUFFIX


# ---- segment ids -----------------------------------------------------------------------------------------------------


def segment_id(number: int, epoch: int) -> int:
    """``(epoch << 32) | number``."""
    if not 0 <= number <= segment_number_max or not 0 <= epoch <= epoch_max:
        raise InvalidArgument(f"segment number {number} and epoch {epoch} must each be in 0..{epoch_max}")
    return epoch << 32 | number


def segment_number(identifier: int) -> int:
    return identifier & 0xFFFFFFFF


def segment_epoch(identifier: int) -> int:
    return identifier >> 32


# ---- segment names ---------------------------------------------------------------------------------------------------


def segment_name(scope: str, stream: str, identifier: int) -> str:
    """``scope/stream/<number>.#epoch.<epoch>``."""
    return f"{scope}/{stream}/{short_segment_name(identifier)}"


def offsets_by_name(scope: str, stream: str, cut: Mapping[int, int]) -> dict[str, int]:
    """Returns the offsets of a cut by the qualified names of its segments."""
    return {segment_name(scope, stream, item): offset for item, offset in cut.items()}


def short_segment_name(identifier: int) -> str:
    """``<number>.#epoch.<epoch>``: the name for people where the stream is named beside it."""
    return f"{segment_number(identifier)}{EPOCH_DELIMITER}{segment_epoch(identifier)}"


def table_segment_name(scope: str, table: str, identifier: int) -> str:
    """``scope/<table>_kvtable/<number>.#epoch.<epoch>``."""
    return segment_name(scope, table_stream(table), identifier)


@dataclass(frozen=True, slots=True)
class SegmentName:
    """A stream segment's name, taken apart; ``transaction_id`` is set for a transaction segment."""

    scope: str
    stream: str
    segment_id: int
    transaction_id: uuid.UUID | None = None

    @property
    def scoped_stream(self) -> str:
        return scoped_name(self.scope, self.stream)

    @property
    def stream_segment(self) -> str:
        """The name without its transaction part."""
        return segment_name(self.scope, self.stream, self.segment_id)

    def __str__(self) -> str:
        if self.transaction_id is None:
            return self.stream_segment
        return transaction_segment_name(self.stream_segment, self.transaction_id)


_NUMBER_AND_EPOCH = re.compile(r"(\d{1,10})(?:\.#epoch\.(\d{1,10}))?")


def parse_segment_name(name: str) -> SegmentName:
    """Take a stream or transaction segment's name apart; a name without an epoch has epoch 0.

    ``InvalidArgument`` for names that do not stand for a segment of a stream (controller tables, container metadata).
    """
    parent, transaction = name, None
    if is_transaction_segment(name):
        parent, _, identifier = name.rpartition(TRANSACTION_DELIMITER)
        transaction = _parse_transaction_hex(identifier, name)
    tokens = parent.split("/")
    match = _NUMBER_AND_EPOCH.fullmatch(tokens[-1])
    if len(tokens) != 3 or not all(tokens) or match is None:
        raise InvalidArgument(f"{name!r} is not a segment name of the form scope/stream/<number>.#epoch.<epoch>")
    return SegmentName(tokens[0], tokens[1], segment_id(int(match[1]), int(match[2] or 0)), transaction)


def _parse_transaction_hex(identifier: str, name: str) -> uuid.UUID:
    if re.fullmatch(r"[0-9a-f]{32}", identifier) is None:
        raise InvalidArgument(f"{name!r} does not end with a transaction id of {transaction_id_chars} hex digits")
    return uuid.UUID(hex=identifier)


def transaction_segment_name(segment: str, transaction_id: uuid.UUID) -> str:
    """``<segment>#transaction.<32 hex>``; ``segment`` must be that of the transaction's epoch."""
    return f"{segment}{TRANSACTION_DELIMITER}{transaction_id.hex}"


def transient_segment_name(parent: str, writer_id: bytes, unique: bytes) -> str:
    """``<parent>#transient.<32 hex writer id>.<32 hex random>``; both ids are 16 bytes."""
    if len(writer_id) != 16 or len(unique) != 16:
        raise InvalidArgument(f"ids of {len(writer_id)} and {len(unique)} bytes, must be 16 each")
    return f"{parent}{TRANSIENT_DELIMITER}{writer_id.hex()}.{unique.hex()}"


def index_segment_name(segment: str) -> str:
    return segment + INDEX_SUFFIX


def is_index_segment(segment: str) -> bool:
    return segment.endswith(INDEX_SUFFIX)


_USER_STREAM_SEGMENT = re.compile(r"[A-Za-z0-9.\-]+/[A-Za-z0-9.\-]+/[0-9]{1,10}\.#epoch\.[0-9]{1,10}")


def is_user_stream_segment(segment: str) -> bool:
    """Whether this is a segment of a user's stream itself: no transaction, transient, index, table, nothing internal.

    Names of the older form without an epoch do not count: their index segments would live in other containers
    (docs/wire-protocol.md 6.4).
    """
    return _USER_STREAM_SEGMENT.fullmatch(segment) is not None


def is_transaction_segment(segment: str) -> bool:
    return _delimited(segment, TRANSACTION_DELIMITER) >= 0


def is_transient_segment(segment: str) -> bool:
    return _delimited(segment, TRANSIENT_DELIMITER) >= 0


def parent_segment_name(segment: str) -> str:
    """The segment that a transaction or transient segment belongs to; any other name as it is."""
    for delimiter in (TRANSACTION_DELIMITER, TRANSIENT_DELIMITER):
        end = _delimited(segment, delimiter)
        if end >= 0:
            return segment[:end]
    return segment


def primary_segment_name(segment: str) -> str:
    """The name that is hashed to find the container: without transaction, transient and epoch parts.

    See docs/wire-protocol.md 6.4.
    """
    parent = parent_segment_name(segment)
    end = parent.rfind(EPOCH_DELIMITER)
    return parent if end < 0 else parent[:end]


def _delimited(segment: str, delimiter: str) -> int:
    """Position of the delimiter when at least an id follows it, else -1."""
    position = segment.rfind(delimiter)
    if position < 0 or len(segment) < position + len(delimiter) + transaction_id_chars:
        return -1
    return position


# ---- transaction ids -------------------------------------------------------------------------------------------------


def transaction_id(epoch: int, counter_high: int, counter_low: int) -> uuid.UUID:
    """An id that carries its epoch in the upper 32 bits (docs/wire-protocol.md 6.1).

    The lower half is kept non-negative as a signed 64-bit number: other clients sign-extend it
    (docs/wire-protocol.md 8.1).
    """
    if not 0 <= epoch <= epoch_max:
        raise InvalidArgument(f"epoch {epoch} must be in 0..{epoch_max}")
    high = epoch << 32 | counter_high & 0xFFFFFFFF
    return uuid.UUID(int=high << 64 | counter_low & 0x7FFFFFFFFFFFFFFF)


def transaction_id_from_bits(high: int, low: int) -> uuid.UUID:
    """The id of two 64-bit halves, signed or unsigned."""
    return uuid.UUID(int=(high & 0xFFFFFFFFFFFFFFFF) << 64 | low & 0xFFFFFFFFFFFFFFFF)


def transaction_id_bits(identifier: uuid.UUID) -> tuple[int, int]:
    """The two signed 64-bit halves of an id, high first, as the controller's messages carry them."""
    high, low = identifier.int >> 64, identifier.int & 0xFFFFFFFFFFFFFFFF
    return _signed(high), _signed(low)


def transaction_epoch(identifier: uuid.UUID) -> int:
    return identifier.int >> 96


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value
