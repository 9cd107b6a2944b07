"""Defines the offset of a streaming source: the position after the last byte read of each segment of each stream.

The JSON is canonical, since Spark compares offsets as text. An end offset carries the start of its own batch in
``from``: Spark does not store the initial offset, so a batch that failed could not be repeated without it
(docs/spark-source-and-sink.md B.3). The segments of a position cover the key space of the stream. A segment that is
read to the end at which it was sealed is replaced by its successors; how far the batch read it is then said in
``ended``, so that a batch can be planned again from its two offsets alone. ``ended`` may name segments that the start
does not have: successors that the batch, with ``order=none``, read to their own end.

Segments of which a batch read nothing are not repeated in ``from``: one that it does not name began where it stands in
``streams``, and one with null there is not of the start, as a successor of what the batch read. Version 1, which is
still read, has every segment of the start in ``from``.

Spark 4.0 and 4.1 do not say where a batch starts when they ask for its end. There the first end of a run says in
``first`` where a query without a checkpoint begins; after a restart that means nothing, so it is not ``from``. A later
end says there where streams begin that the end before did not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pravega_common.errors import InvalidArgument
from pravega_common.model.segments import SegmentOffsets
from pravega_common.names import split_scoped_name

VERSION: Final = 2
VERSION_OLDEST: Final = 1

OffsetsByStream = Mapping[str, SegmentOffsets]
"""The position of a read of several streams: the offsets of each by ``scope/stream``."""


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """An offset as Spark stores it.

    ``start``: in every end offset, which alone may have ``ended``, but those of Spark 4.0 and 4.1. In an initial offset
    None, or the position itself.
    """

    position: OffsetsByStream
    start: OffsetsByStream | None = None
    ended: OffsetsByStream = field(default_factory=dict)
    first: OffsetsByStream | None = None
    """Where streams begin that came with this batch of Spark 4.0 or 4.1; in a first batch all, where it is repeated."""

    def to_json(self) -> dict[str, Any]:
        """The offset as JSON, streams by name and segments by id: the same offset always gives the same text."""
        made: dict[str, Any] = {"version": VERSION, "streams": _sorted(self.position)}
        if self.start is not None:
            made["from"] = {name: self._from_of(name, self.start[name]) for name in sorted(self.start)}
        if self.ended:
            made["ended"] = _sorted(self.ended)
        if self.first is not None:
            made["first"] = _sorted(self.first)
        return made

    def _from_of(self, stream: str, start: SegmentOffsets) -> dict[str, int | None]:
        """The start of a stream, but for what stands where it stood; null for segments that came after it."""
        position = self.position.get(stream, {})
        return {
            str(item): start.get(item)
            for item in sorted({*start, *position})
            if item not in start or start[item] != position.get(item)
        }

    @classmethod
    def from_json(cls, made: Any) -> SourceOffset:
        """Parse an offset. ``InvalidArgument`` for one that is damaged, of a newer version, or of another source."""
        version = made.get("version") if isinstance(made, Mapping) else None
        if not isinstance(version, int) or isinstance(version, bool):
            raise InvalidArgument(
                f"the checkpoint's offset {_short(made)} is not one of this source: it has no version"
            )
        if not VERSION_OLDEST <= version <= VERSION:
            raise InvalidArgument(
                f"the checkpoint's offset has version {version}, this connector reads versions {VERSION_OLDEST} to "
                f"{VERSION}; use the connector that wrote it, or a newer one"
            )
        if made.get("streams") == {} and made.keys() <= {"version", "streams", "first"} and version > VERSION_OLDEST:
            return cls({})  # A query whose pattern matches no stream yet.
        position = _parsed(made.get("streams"))
        start, ended, first = made.get("from"), made.get("ended"), made.get("first")
        if start is not None:
            start = _parsed(start) if version == VERSION_OLDEST else _started(start, position)
        if first is not None:  # Earlier versions also named streams that were gone by the end: no batch has them.
            first = {name: cut for name, cut in _parsed(first).items() if name in position} or None
        return cls(position, start, {} if ended is None else _parsed(ended), first)


def _sorted(position: OffsetsByStream) -> dict[str, dict[str, int]]:
    return {
        stream: {str(segment_id): position[stream][segment_id] for segment_id in sorted(position[stream])}
        for stream in sorted(position)
    }


def _parsed(streams: Any) -> OffsetsByStream:
    _check_streams(streams)
    return {_stream(name): _segments(name, segments) for name, segments in streams.items()}


def _check_streams(streams: Any) -> None:
    if not isinstance(streams, Mapping) or not streams:
        raise InvalidArgument(f"the checkpoint's offset is damaged: {_short(streams)} names no streams")


def _started(streams: Any, position: OffsetsByStream) -> OffsetsByStream:
    """The whole start of a batch, from what differs from its end."""
    _check_streams(streams)
    starts = {}
    for name, segments in streams.items():
        stood = position.get(_stream(name), {})
        if not isinstance(segments, Mapping):
            raise _damaged(name, segments)
        later = {item for item, offset in segments.items() if offset is None}
        began = {item: offset for item, offset in segments.items() if item not in later}
        kept = {item: offset for item, offset in stood.items() if str(item) not in segments}
        starts[name] = {**kept, **(_segments(name, began) if began else {})}
        if not starts[name] or not later <= set(map(str, stood)):
            raise _damaged(name, segments)
    return starts


def _stream(name: Any) -> str:
    if not isinstance(name, str):
        raise InvalidArgument(f"the checkpoint's offset is damaged: {_short(name)} is no stream")
    split_scoped_name(name)
    return name


def _segments(stream: str, segments: Any) -> SegmentOffsets:
    if not isinstance(segments, Mapping) or not segments:
        raise _damaged(stream, segments)
    parsed = {}
    for segment_id, offset in segments.items():
        identifier = int(segment_id) if isinstance(segment_id, str) and segment_id.isdecimal() else -1
        if not _is_int64(identifier) or not _is_int64(offset):
            raise InvalidArgument(
                f"the checkpoint's offset is damaged: stream {stream}, segment {_short(segment_id)} at {_short(offset)}"
            )
        parsed[identifier] = offset
    return parsed


def _damaged(stream: str, segments: Any) -> InvalidArgument:
    return InvalidArgument(f"the checkpoint's offset is damaged: stream {stream} has {_short(segments)} for segments")


def _is_int64(value: Any) -> bool:
    """Whether a value is a whole number that a segment id or an offset may be."""
    return type(value) is int and 0 <= value < 2**63


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
