"""Defines every command of the wire protocol as a frozen class whose annotations are its layout.

See docs/wire-protocol.md 2.

Field order is wire order. Ids are 16 ``bytes`` (most significant first), bulk data are ``bytes`` or ``memoryview``,
lists are tuples of the structures re-exported here. Fields of a ``Trailing…`` type may be absent in what an older
peer sends and then take their default.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, dataclass_transform

from pravega_common.invariants import check
from pravega_common.wire.command_class import Command as Command
from pravega_common.wire.command_class import command_class
from pravega_common.wire.fields import (
    I8,
    I32,
    I64,
    Bool,
    Bulk,
    Chunks,
    Entries,
    EventData,
    Frames,
    Keys,
    MergedSources,
    Raw,
    SmallBytes,
    Str,
    Strings,
    TrailingBool,
    TrailingBytes,
    TrailingFlags,
    TrailingI32,
    TrailingI64,
    TrailingStr,
    TrailingUpdates,
    Uuid,
    Versions,
)
from pravega_common.wire.fields import (
    NO_VERSION as NO_VERSION,
)
from pravega_common.wire.fields import (
    NOT_EXISTS as NOT_EXISTS,
)
from pravega_common.wire.fields import (
    ByteView as ByteView,
)
from pravega_common.wire.fields import (
    MergedSource as MergedSource,
)
from pravega_common.wire.fields import (
    WireAttributeUpdate as WireAttributeUpdate,
)
from pravega_common.wire.fields import (
    WireChunkInfo as WireChunkInfo,
)
from pravega_common.wire.fields import (
    WireTableEntry as WireTableEntry,
)
from pravega_common.wire.fields import (
    WireTableKey as WireTableKey,
)

NULL_ATTRIBUTE_VALUE: Final = -(2**63)
"""The value of an attribute that is absent; written, it removes the attribute."""


COMMANDS: dict[int, type[Command]] = {}
"""Command classes by type code."""

_C = TypeVar("_C", bound=Command)


@dataclass_transform(frozen_default=True)
def _command(type_code: int) -> Callable[[type[_C]], type[_C]]:
    def decorate(plain: type[_C]) -> type[_C]:
        made = command_class(plain, type_code, globals())
        check(type_code not in COMMANDS, "two commands with one type code", type_code=type_code)
        COMMANDS[type_code] = made
        return made

    return decorate


@_command(-127)
class Hello(Command):
    high_version: I32
    low_version: I32
    extensions: TrailingFlags = 0


@_command(-1)
class Padding(Command):
    content: Raw = b""


@_command(-2)
class PartialEvent(Command):
    data: Raw


@_command(-3)
class FlushToStorage(Command):
    container_id: I32
    token: Str
    request_id: I64


@_command(-4)
class StorageFlushed(Command):
    request_id: I64


@_command(-5)
class ListStorageChunks(Command):
    segment: Str
    token: Str
    request_id: I64


@_command(-6)
class StorageChunksListed(Command):
    request_id: I64
    chunks: Chunks


@_command(0)
class Event(Command):
    """Never a frame of its own: the format of an event inside a segment, whose header is the frame header."""

    data: Raw


@_command(1)
class SetupAppend(Command):
    request_id: I64
    writer_id: Uuid
    segment: Str
    token: Str = ""


@_command(2)
class AppendSetup(Command):
    request_id: I64
    segment: Str
    writer_id: Uuid
    last_event_number: I64


@_command(3)
class AppendBlock(Command):
    writer_id: Uuid
    data: Raw


@_command(4)
class AppendBlockEnd(Command):
    writer_id: Uuid
    size_of_whole_events: I32
    data: Bulk
    num_events: I32
    last_event_number: I64
    request_id: TrailingI64 = -1


@_command(5)
class ConditionalAppend(Command):
    """``data`` is the event without its header; the header is stored with it."""

    writer_id: Uuid
    event_number: I64
    expected_offset: I64
    data: EventData
    request_id: TrailingI64 = -1


@_command(7)
class DataAppended(Command):
    writer_id: Uuid
    event_number: I64
    previous_event_number: TrailingI64 = -1
    request_id: TrailingI64 = -1
    current_segment_write_offset: TrailingI64 = -1


@_command(8)
class ConditionalCheckFailed(Command):
    writer_id: Uuid
    event_number: I64
    request_id: TrailingI64 = -1


@_command(9)
class ReadSegment(Command):
    segment: Str
    offset: I64
    suggested_length: I32
    token: Str
    request_id: TrailingI64 = -1


@_command(10)
class SegmentRead(Command):
    segment: Str
    offset: I64
    at_tail: Bool
    end_of_segment: Bool
    data: Bulk
    request_id: TrailingI64 = -1


@_command(11)
class GetStreamSegmentInfo(Command):
    request_id: I64
    segment: Str
    token: Str = ""


@_command(12)
class StreamSegmentInfo(Command):
    request_id: I64
    segment: Str
    exists: Bool
    is_sealed: Bool
    is_deleted: Bool
    last_modified: I64
    write_offset: I64
    start_offset: TrailingI64 = 0


@_command(20)
class CreateSegment(Command):
    request_id: I64
    segment: Str
    target_rate: I32
    scale_type: I8
    token: Str = ""
    rollover_size_bytes: TrailingI64 = 0


@_command(21)
class SegmentCreated(Command):
    request_id: I64
    segment: Str


@_command(28)
class SealSegment(Command):
    request_id: I64
    segment: Str
    token: Str = ""


@_command(29)
class SegmentSealed(Command):
    request_id: I64
    segment: Str


@_command(30)
class DeleteSegment(Command):
    request_id: I64
    segment: Str
    token: Str = ""


@_command(31)
class SegmentDeleted(Command):
    request_id: I64
    segment: Str


@_command(32)
class UpdateSegmentPolicy(Command):
    request_id: I64
    segment: Str
    target_rate: I32
    scale_type: I8
    token: Str = ""


@_command(33)
class SegmentPolicyUpdated(Command):
    request_id: I64
    segment: Str


@_command(34)
class GetSegmentAttribute(Command):
    request_id: I64
    segment: Str
    attribute_id: Uuid
    token: Str = ""


@_command(35)
class SegmentAttribute(Command):
    request_id: I64
    value: I64


@_command(36)
class UpdateSegmentAttribute(Command):
    request_id: I64
    segment: Str
    attribute_id: Uuid
    new_value: I64
    expected_value: I64
    token: Str = ""


@_command(37)
class SegmentAttributeUpdated(Command):
    request_id: I64
    success: Bool


@_command(38)
class TruncateSegment(Command):
    request_id: I64
    segment: Str
    truncation_offset: I64
    token: Str = ""


@_command(39)
class SegmentTruncated(Command):
    request_id: I64
    segment: Str


@_command(40)
class CreateTransientSegment(Command):
    request_id: I64
    writer_id: Uuid
    parent_segment: Str
    token: Str = ""


@_command(41)
class LocateOffset(Command):
    request_id: I64
    segment: Str
    target_offset: I64
    token: Str = ""


@_command(42)
class OffsetLocated(Command):
    request_id: I64
    segment: Str
    offset: I64


@_command(50)
class WrongHost(Command):
    request_id: I64
    segment: Str
    correct_host: Str = ""
    stack: TrailingStr = ""


@_command(51)
class SegmentIsSealed(Command):
    request_id: I64
    segment: Str
    stack: TrailingStr = ""
    offset: TrailingI64 = -1


@_command(52)
class SegmentAlreadyExists(Command):
    request_id: I64
    segment: Str
    stack: TrailingStr = ""


@_command(53)
class NoSuchSegment(Command):
    request_id: I64
    segment: Str
    stack: TrailingStr = ""
    offset: TrailingI64 = -1


@_command(55)
class InvalidEventNumber(Command):
    writer_id: Uuid
    request_id: I64
    stack: TrailingStr = ""
    event_number: TrailingI64 = -1


@_command(56)
class SegmentIsTruncated(Command):
    request_id: I64
    segment: Str
    start_offset: I64
    stack: TrailingStr = ""
    offset: TrailingI64 = -1


@_command(57)
class OperationUnsupported(Command):
    request_id: I64
    operation_name: Str
    stack: TrailingStr = ""


@_command(58)
class MergeSegments(Command):
    request_id: I64
    target: Str
    source: Str
    token: Str = ""
    attribute_updates: TrailingUpdates = ()


@_command(59)
class SegmentsMerged(Command):
    request_id: I64
    target: Str
    source: Str
    new_target_write_offset: TrailingI64 = -1


TOKEN_CHECK_FAILED = 0
TOKEN_EXPIRED = 1


@_command(60)
class AuthTokenCheckFailed(Command):
    """``error_code``: -1 unspecified, 0 token check failed, 1 token expired."""

    request_id: I64
    stack: TrailingStr = ""
    error_code: TrailingI32 = -1


ILLEGAL_ARGUMENT = 0
DATA_CORRUPTION = 1000
THROTTLED = 1001


@_command(61)
class ErrorMessage(Command):
    """``error_code``: -1 unspecified, 0 illegal argument, 1000 data corruption, 1001 a limit was reached; the last
    two are ours: clients that do not know them take them as unspecified. Without a request, id 0, it says why the
    connection is closed."""

    request_id: I64
    segment: Str
    message: Str
    error_code: I32


@_command(68)
class GetTableSegmentInfo(Command):
    request_id: I64
    segment: Str
    token: Str = ""


@_command(69)
class TableSegmentInfo(Command):
    request_id: I64
    segment: Str
    start_offset: I64
    length: I64
    entry_count: I64
    key_length: I32


@_command(70)
class CreateTableSegment(Command):
    request_id: I64
    segment: Str
    token: Str = ""
    sorted_deprecated: TrailingBool = False
    key_length: TrailingI32 = 0
    rollover_size_bytes: TrailingI64 = 0


@_command(71)
class DeleteTableSegment(Command):
    request_id: I64
    segment: Str
    must_be_empty: Bool
    token: Str = ""


@_command(74)
class UpdateTableEntries(Command):
    request_id: I64
    segment: Str
    token: Str
    entries: Entries
    table_segment_offset: TrailingI64 = -1


@_command(75)
class TableEntriesUpdated(Command):
    request_id: I64
    versions: Versions


@_command(76)
class RemoveTableKeys(Command):
    request_id: I64
    segment: Str
    token: Str
    keys: Keys
    table_segment_offset: TrailingI64 = -1


@_command(77)
class TableKeysRemoved(Command):
    request_id: I64
    segment: Str


@_command(78)
class ReadTable(Command):
    request_id: I64
    segment: Str
    token: Str
    keys: Keys


@_command(79)
class TableRead(Command):
    request_id: I64
    segment: Str
    entries: Entries


@_command(80)
class TableSegmentNotEmpty(Command):
    request_id: I64
    segment: Str
    stack: Str = ""


@_command(81)
class TableKeyDoesNotExist(Command):
    request_id: I64
    segment: Str
    stack: Str = ""


@_command(82)
class TableKeyBadVersion(Command):
    request_id: I64
    segment: Str
    stack: Str = ""


@_command(83)
class ReadTableKeys(Command):
    request_id: I64
    segment: Str
    token: Str
    suggested_key_count: I32
    continuation_token: TrailingBytes = b""
    prefix_filter: TrailingBytes = b""
    from_key: TrailingBytes = b""
    to_key: TrailingBytes = b""


@_command(84)
class TableKeysRead(Command):
    request_id: I64
    segment: Str
    keys: Keys
    continuation_token: SmallBytes


@_command(85)
class ReadTableEntries(Command):
    request_id: I64
    segment: Str
    token: Str
    suggested_entry_count: I32
    continuation_token: TrailingBytes = b""
    prefix_filter: TrailingBytes = b""
    from_key: TrailingBytes = b""
    to_key: TrailingBytes = b""


@_command(86)
class TableEntriesRead(Command):
    request_id: I64
    segment: Str
    entries: Entries
    continuation_token: SmallBytes


@_command(87)
class TableEntriesDeltaRead(Command):
    request_id: I64
    segment: Str
    entries: Entries
    should_clear: Bool
    reached_end: Bool
    last_position: I64


@_command(88)
class ReadTableEntriesDelta(Command):
    request_id: I64
    segment: Str
    token: Str
    from_position: I64
    suggested_entry_count: I32


@_command(89)
class ConditionalBlockEnd(Command):
    """Like ``ConditionalAppend``, with ``data`` stored as it is, no event header added."""

    writer_id: Uuid
    event_number: I64
    expected_offset: I64
    data: Bulk
    request_id: I64


@_command(90)
class MergeSegmentsBatch(Command):
    request_id: I64
    target: Str
    sources: Strings
    token: Str = ""


@_command(91)
class SegmentsBatchMerged(Command):
    request_id: I64
    target: Str
    merged: MergedSources


@_command(100)
class KeepAlive(Command):
    pass


FAILURE_REPLIES: Final[frozenset[type[Command]]] = frozenset(
    COMMANDS[code] for code in (50, 51, 52, 53, 55, 56, 57, 60, 61, 80, 81, 82)
)
"""Replies that say that a request was not done (docs/wire-protocol.md 2.3)."""


@_command(1000)
class RequestBatch(Command):
    """Requests about segments of one store; each of ``requests`` is a frame of its own, with a request id of its own.

    Only for a store that has announced ``BATCHES``: others close the connection (docs/wire-protocol.md 3.9).
    """

    request_id: I64
    requests: Frames


@_command(1001)
class RequestBatchAnswered(Command):
    """One reply for each request of a batch, in its order: the frame that would have answered it alone."""

    request_id: I64
    replies: Frames


@_command(1002)
class NoReply(Command):
    """Stands for a reply inside a batch that the store cannot give: what became of the request is to be asked again."""

    request_id: I64
    reason: Str


@_command(1003)
class GetSegmentLengths(Command):
    """Only for a store that has announced ``SEGMENT_LENGTHS`` (docs/wire-protocol.md 3.9)."""

    request_id: I64
    segments: Strings
    token: Str = ""


NO_SEGMENT: Final = -1
"""Stands for the length of a segment that is not there."""


@_command(1004)
class SegmentLengths(Command):
    """The length of each segment that was asked about, in their order; ``NO_SEGMENT`` for one that is missing."""

    request_id: I64
    lengths: Versions


READING_REQUESTS: Final = (
    ReadSegment,
    GetStreamSegmentInfo,
    GetSegmentLengths,
    GetSegmentAttribute,
    LocateOffset,
    GetTableSegmentInfo,
    ReadTable,
    ReadTableKeys,
    ReadTableEntries,
    ReadTableEntriesDelta,
)
"""Requests that change nothing; all others need the permission to update."""
