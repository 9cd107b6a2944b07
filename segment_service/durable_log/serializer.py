"""Encodes operations as records and back. The format is permanent: Tier 1 holds it; golden bytes prove it.

Every record begins with ``version u8 | type u8 | sequence_number i64``; what follows depends on the type::

    MAP_SEGMENT       id i64 | created_ms i64 | name_length u16 | name utf-8 | attributes
    APPEND            id i64 | offset i64 | time_ms i64 | length u32 | attributes | data
    SEAL, TRUNCATE    id i64 | offset i64
    MERGE             id i64 | source_id i64 | offset i64 | length i64 | time_ms i64 | attributes
    UPDATE_ATTRIBUTES id i64 | attributes
    DELETE            id i64
    CHECKPOINT        snapshot to the end of the record
    BARRIER           nothing

    attributes = count u32 | count * (id 16 bytes | value i64)

There is no checksum here: the data frame around the records has one.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from pravega_common.errors import DataCorruption
from pravega_common.invariants import check
from segment_service.contracts.attributes import AttributeId
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.operations import (
    ActivateSegment,
    Append,
    AttributeValues,
    Barrier,
    Checkpoint,
    Delete,
    MapSegment,
    Merge,
    Operation,
    Seal,
    Truncate,
    UpdateAttributes,
)

FORMAT_VERSION: Final = 1


class RecordType(enum.IntEnum):
    """Type of a record. The numbers never change: they are in Tier 1."""

    MAP_SEGMENT = 1
    APPEND = 2
    SEAL = 3
    TRUNCATE = 4
    MERGE = 5
    UPDATE_ATTRIBUTES = 6
    DELETE = 7
    CHECKPOINT = 8
    BARRIER = 9
    ACTIVATE_SEGMENT = 10


_PREFIX: Final = struct.Struct(">BBq")
_MAP_SEGMENT: Final = struct.Struct(">BBqqqH")
_APPEND: Final = struct.Struct(">BBqqqqII")
"""With the attribute count at its end."""
_POSITION: Final = struct.Struct(">BBqqq")
_MERGE: Final = struct.Struct(">BBqqqqqqI")
_UPDATE_ATTRIBUTES: Final = struct.Struct(">BBqqI")
_SEGMENT: Final = struct.Struct(">BBqq")
_COUNT: Final = struct.Struct(">I")
_ATTRIBUTE: Final = struct.Struct(">16sq")

_APPEND_TYPE: Final = int(RecordType.APPEND)


class SerializedOperation(NamedTuple):
    """A serialised operation: ``head`` and then ``body``, together ``length`` bytes. ``body`` stays as views."""

    head: bytes
    body: Sequence[Buffer]
    length: int


def serialize(operation: Operation) -> SerializedOperation:
    """The record of an operation."""
    if type(operation) is Append:
        return _serialize_append(operation)
    head = _WRITERS[type(operation)](operation)
    if type(operation) is Checkpoint:
        return SerializedOperation(head, (operation.snapshot,), len(head) + len(operation.snapshot))
    if type(operation) is ActivateSegment:
        return SerializedOperation(head, (operation.record,), len(head) + len(operation.record))
    return SerializedOperation(head, (), len(head))


def _serialize_append(operation: Append) -> SerializedOperation:
    data = operation.data
    check(data is not None, "an append without its bytes cannot be serialised", operation=operation)
    values = operation.values
    head = _APPEND.pack(
        FORMAT_VERSION,
        _APPEND_TYPE,
        operation.sequence_number,
        operation.segment_id,
        operation.offset,
        operation.time_ms,
        operation.length,
        len(values),
    )
    if values:
        head += _pack_attributes(values)
    return SerializedOperation(head, data or (), len(head) + operation.length)


def _pack_attributes(values: AttributeValues) -> bytes:
    pack = _ATTRIBUTE.pack
    if len(values) == 1:
        attribute_id, value = values[0]
        return pack(attribute_id, value)
    return b"".join([pack(attribute_id, value) for attribute_id, value in values])


def _write_map_segment(operation: MapSegment) -> bytes:
    name = operation.name.encode()
    head = _MAP_SEGMENT.pack(
        FORMAT_VERSION,
        RecordType.MAP_SEGMENT,
        operation.sequence_number,
        operation.segment_id,
        operation.created_ms,
        len(name),
    )
    values = tuple(operation.attributes.items())
    return b"".join((head, name, _COUNT.pack(len(values)), _pack_attributes(values)))


def _write_seal(operation: Seal) -> bytes:
    return _POSITION.pack(
        FORMAT_VERSION, RecordType.SEAL, operation.sequence_number, operation.segment_id, operation.offset
    )


def _write_truncate(operation: Truncate) -> bytes:
    return _POSITION.pack(
        FORMAT_VERSION, RecordType.TRUNCATE, operation.sequence_number, operation.segment_id, operation.offset
    )


def _write_merge(operation: Merge) -> bytes:
    head = _MERGE.pack(
        FORMAT_VERSION,
        RecordType.MERGE,
        operation.sequence_number,
        operation.segment_id,
        operation.source_id,
        operation.offset,
        operation.length,
        operation.time_ms,
        len(operation.values),
    )
    return head + _pack_attributes(operation.values)


def _write_update_attributes(operation: UpdateAttributes) -> bytes:
    head = _UPDATE_ATTRIBUTES.pack(
        FORMAT_VERSION,
        RecordType.UPDATE_ATTRIBUTES,
        operation.sequence_number,
        operation.segment_id,
        len(operation.values),
    )
    return head + _pack_attributes(operation.values)


def _write_delete(operation: Delete) -> bytes:
    return _SEGMENT.pack(FORMAT_VERSION, RecordType.DELETE, operation.sequence_number, operation.segment_id)


def _write_checkpoint(operation: Checkpoint) -> bytes:
    return _PREFIX.pack(FORMAT_VERSION, RecordType.CHECKPOINT, operation.sequence_number)


def _write_barrier(operation: Barrier) -> bytes:
    return _PREFIX.pack(FORMAT_VERSION, RecordType.BARRIER, operation.sequence_number)


def _write_activate_segment(operation: ActivateSegment) -> bytes:
    return _SEGMENT.pack(FORMAT_VERSION, RecordType.ACTIVATE_SEGMENT, operation.sequence_number, operation.segment_id)


_WRITERS: Final[dict[type[Operation], Callable[..., bytes]]] = {
    MapSegment: _write_map_segment,
    Seal: _write_seal,
    Truncate: _write_truncate,
    Merge: _write_merge,
    UpdateAttributes: _write_update_attributes,
    Delete: _write_delete,
    Checkpoint: _write_checkpoint,
    Barrier: _write_barrier,
    ActivateSegment: _write_activate_segment,
}


def deserialize(record: memoryview) -> Operation:
    """The operation of one whole record; the data of an append stays a view on it.

    ``DataCorruption`` on a version or type this program does not know, and on a record of the wrong length.
    """
    try:
        version, kind, sequence_number = _PREFIX.unpack_from(record)
        if version != FORMAT_VERSION:
            raise DataCorruption(f"operation record has version {version}; this program reads {FORMAT_VERSION}")
        reader = _READERS.get(kind)
        if reader is None:
            raise DataCorruption(f"operation record {sequence_number} has the unknown type {kind}")
        operation, end = reader(record)
    except (struct.error, UnicodeDecodeError) as error:
        raise DataCorruption(f"operation record of {len(record)} bytes is cut short or garbled: {error}") from error
    if end != len(record):
        raise DataCorruption(f"operation record {sequence_number} has {len(record)} bytes, its fields take {end}")
    return operation


def _read_attributes(record: memoryview, count: int, at: int) -> tuple[AttributeValues, int]:
    unpack = _ATTRIBUTE.unpack_from
    values = []
    for position in range(at, at + count * _ATTRIBUTE.size, _ATTRIBUTE.size):
        attribute_id, value = unpack(record, position)
        values.append((AttributeId(attribute_id), value))
    return tuple(values), at + count * _ATTRIBUTE.size


def _read_map_segment(record: memoryview) -> tuple[Operation, int]:
    _, _, number, segment_id, created_ms, name_length = _MAP_SEGMENT.unpack_from(record)
    name_end = _MAP_SEGMENT.size + name_length
    name = bytes(record[_MAP_SEGMENT.size : name_end]).decode()
    (count,) = _COUNT.unpack_from(record, name_end)
    values, end = _read_attributes(record, count, name_end + _COUNT.size)
    operation = MapSegment(
        sequence_number=number, segment_id=segment_id, name=name, created_ms=created_ms, attributes=dict(values)
    )
    return operation, end


def _read_append(record: memoryview) -> tuple[Operation, int]:
    _, _, number, segment_id, offset, time_ms, length, count = _APPEND.unpack_from(record)
    values, begin = _read_attributes(record, count, _APPEND.size)
    data = (record[begin : begin + length],)
    operation = Append(
        sequence_number=number,
        segment_id=segment_id,
        offset=offset,
        length=length,
        data=data,
        values=values,
        time_ms=time_ms,
    )
    return operation, begin + length


def _read_seal(record: memoryview) -> tuple[Operation, int]:
    _, _, number, segment_id, offset = _POSITION.unpack_from(record)
    return Seal(sequence_number=number, segment_id=segment_id, offset=offset), _POSITION.size


def _read_truncate(record: memoryview) -> tuple[Operation, int]:
    _, _, number, segment_id, offset = _POSITION.unpack_from(record)
    return Truncate(sequence_number=number, segment_id=segment_id, offset=offset), _POSITION.size


def _read_merge(record: memoryview) -> tuple[Operation, int]:
    _, _, number, segment_id, source_id, offset, length, time_ms, count = _MERGE.unpack_from(record)
    values, end = _read_attributes(record, count, _MERGE.size)
    operation = Merge(
        sequence_number=number,
        segment_id=segment_id,
        source_id=source_id,
        offset=offset,
        length=length,
        values=values,
        time_ms=time_ms,
    )
    return operation, end


def _read_update_attributes(record: memoryview) -> tuple[Operation, int]:
    _, _, number, segment_id, count = _UPDATE_ATTRIBUTES.unpack_from(record)
    values, end = _read_attributes(record, count, _UPDATE_ATTRIBUTES.size)
    return UpdateAttributes(sequence_number=number, segment_id=segment_id, values=values), end


def _read_delete(record: memoryview) -> tuple[Operation, int]:
    _, _, number, segment_id = _SEGMENT.unpack_from(record)
    return Delete(sequence_number=number, segment_id=segment_id), _SEGMENT.size


def _read_checkpoint(record: memoryview) -> tuple[Operation, int]:
    _, _, number = _PREFIX.unpack_from(record)
    return Checkpoint(sequence_number=number, snapshot=bytes(record[_PREFIX.size :])), len(record)


def _read_barrier(record: memoryview) -> tuple[Operation, int]:
    _, _, number = _PREFIX.unpack_from(record)
    return Barrier(sequence_number=number), _PREFIX.size


def _read_activate_segment(record: memoryview) -> tuple[Operation, int]:
    _, _, number, segment_id = _SEGMENT.unpack_from(record)
    return (
        ActivateSegment(sequence_number=number, segment_id=segment_id, record=bytes(record[_SEGMENT.size :])),
        len(record),
    )


_READERS: Final[dict[int, Callable[[memoryview], tuple[Operation, int]]]] = {
    RecordType.MAP_SEGMENT: _read_map_segment,
    RecordType.APPEND: _read_append,
    RecordType.SEAL: _read_seal,
    RecordType.TRUNCATE: _read_truncate,
    RecordType.MERGE: _read_merge,
    RecordType.UPDATE_ATTRIBUTES: _read_update_attributes,
    RecordType.DELETE: _read_delete,
    RecordType.CHECKPOINT: _read_checkpoint,
    RecordType.BARRIER: _read_barrier,
    RecordType.ACTIVATE_SEGMENT: _read_activate_segment,
}
