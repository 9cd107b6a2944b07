"""Defines the records of a container's metadata log, as JSON in the payloads of plog entries. Pure values.

A metadata plog begins with a full record; later records change one stream each. Replaying a metadata plog gives the
state at its end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pravega_common.errors import DataCorruption, InvalidArgument
from pravega_common.invariants import check
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.data_log import LogAddress
from segment_service.plog.plog import PlogId


@dataclass(frozen=True, slots=True)
class PlogRecord:
    """One plog of a log stream."""

    number: int
    plog_id: PlogId
    first_sequence: int
    """Number of the first frame in it."""
    previous: LogAddress | None
    """The address of the frame before its first one; ``None`` at the begin of the stream."""
    sealed: int | None = None
    """Length in bytes; ``None`` for the last plog of the list."""


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """One log stream: its plogs in order, of which only the last one is open."""

    plogs: tuple[PlogRecord, ...] = ()
    truncated_at: LogAddress | None = None
    """The address of the first frame that still counts; ``None`` if nothing was ever truncated."""
    next_number: int = 0
    """Plog numbers are given out once."""

    @property
    def last(self) -> PlogRecord:
        check(bool(self.plogs), "a log stream without plogs")
        return self.plogs[-1]


@dataclass(frozen=True, slots=True)
class InitRecord:
    """A stream's first plog."""

    stream: str
    plog: PlogRecord


@dataclass(frozen=True, slots=True)
class SwitchRecord:
    """Incremental: the last plog was sealed at ``sealed`` bytes (and dropped if it is empty), ``plog`` follows it."""

    stream: str
    sealed: int
    plog: PlogRecord


@dataclass(frozen=True, slots=True)
class TruncateRecord:
    """Incremental: frames before ``up_to`` no longer count, nor do the plogs wholly below it."""

    stream: str
    up_to: LogAddress


@dataclass(frozen=True, slots=True)
class FullRecord:
    """The whole state: every log stream of the container."""

    streams: Mapping[str, StreamRecord] = field(default_factory=dict)
    number: int = 0
    """How many metadata plogs the container had before this one."""


MetadataRecord = InitRecord | SwitchRecord | TruncateRecord | FullRecord


def apply(state: FullRecord, record: MetadataRecord) -> FullRecord:
    """The state after ``record``."""
    if isinstance(record, FullRecord):
        return record
    stream = state.streams.get(record.stream, StreamRecord())
    if isinstance(record, InitRecord):
        check(not stream.plogs, "a log stream initialized twice", stream=record.stream)
        changed = replace(stream, plogs=(record.plog,), next_number=record.plog.number + 1)
    elif isinstance(record, SwitchRecord):
        changed = _switched(stream, record)
    else:
        kept = tuple(plog for plog in stream.plogs if plog.number >= record.up_to.plog_number)
        check(bool(kept), "truncation beyond the last plog", stream=record.stream, up_to=record.up_to)
        changed = replace(stream, plogs=kept, truncated_at=record.up_to)
    return replace(state, streams={**state.streams, record.stream: changed})


def _switched(stream: StreamRecord, record: SwitchRecord) -> StreamRecord:
    last = stream.last
    check(record.plog.number >= stream.next_number, "a plog number used twice", number=record.plog.number)
    check(last.sealed is None, "the last plog is sealed already", number=last.number)
    sealed = (replace(last, sealed=record.sealed),) if record.sealed > 0 else ()
    return replace(stream, plogs=(*stream.plogs[:-1], *sealed, record.plog), next_number=record.plog.number + 1)


def _address(address: LogAddress | None) -> list[int] | None:
    return None if address is None else [address.plog_number, address.offset]


def _plog(plog: PlogRecord) -> list[Any]:
    return [plog.number, str(plog.plog_id), plog.first_sequence, _address(plog.previous), plog.sealed]


def encode_record(record: MetadataRecord) -> bytes:
    if isinstance(record, InitRecord):
        value: dict[str, Any] = {"type": "init", "stream": record.stream, "plog": _plog(record.plog)}
    elif isinstance(record, SwitchRecord):
        value = {"type": "switch", "stream": record.stream, "sealed": record.sealed, "plog": _plog(record.plog)}
    elif isinstance(record, TruncateRecord):
        value = {"type": "truncate", "stream": record.stream, "up_to": _address(record.up_to)}
    else:
        streams = {
            name: [[_plog(plog) for plog in stream.plogs], _address(stream.truncated_at), stream.next_number]
            for name, stream in record.streams.items()
        }
        value = {"type": "full", "number": record.number, "streams": streams}
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def decode_record(data: Buffer) -> MetadataRecord:
    """``DataCorruption`` for bytes that are no record known here."""
    try:
        value = json.loads(bytes(data))
        kind = value["type"]
        if kind == "init":
            return InitRecord(value["stream"], _read_plog(value["plog"]))
        if kind == "switch":
            return SwitchRecord(value["stream"], int(value["sealed"]), _read_plog(value["plog"]))
        if kind == "truncate":
            return TruncateRecord(value["stream"], LogAddress(*value["up_to"]))
        if kind == "full":
            return FullRecord(
                {name: _read_stream(stream) for name, stream in value["streams"].items()}, int(value["number"])
            )
    except (ValueError, KeyError, TypeError, InvalidArgument) as error:
        raise DataCorruption(f"metadata record {bytes(data[:100])!r} cannot be read: {error!r}") from error
    raise DataCorruption(f"metadata record of type {kind!r} is not known here")


def _read_plog(value: list[Any]) -> PlogRecord:
    number, plog_id, first_sequence, previous, sealed = value
    address = None if previous is None else LogAddress(*previous)
    return PlogRecord(int(number), PlogId.parse(plog_id), int(first_sequence), address, sealed)


def _read_stream(value: list[Any]) -> StreamRecord:
    plogs, truncated_at, next_number = value
    address = None if truncated_at is None else LogAddress(*truncated_at)
    return StreamRecord(tuple(_read_plog(plog) for plog in plogs), address, int(next_number))
