"""Adds up the bytes from a stream cut to the tail of its stream, as long as that needs few epochs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from controller_service.store.history import bytes_between, place_in
from controller_service.store.stream_context import StreamContext
from controller_service.store.stream_cuts import PlacedCut
from pravega_common.model.segments import SegmentOffsets

epochs_max: Final = 200
"""Epochs over which one distance is added up."""
segments_read_max: Final = 150_000
"""Segments of all these epochs together."""


@dataclass(slots=True)
class Room:
    """The segments of epochs that the distances of one answer may still read; a segment counts once an epoch."""

    segments: int


class Distances:
    """Bytes behind the cuts of one stream, as its records and its tail were when this was made."""

    def __init__(self, context: StreamContext, tail: SegmentOffsets | None, room: Room | None = None) -> None:
        """``tail``: the lengths of the segments of the current epoch; None if they are not known. ``room``: shared by
        the streams of one answer; None for an answer about one stream."""
        self._context = context
        self._tail = tail
        self._room = room
        self.was_too_long = False
        """Whether a distance was left out because it needs too many epochs, or more room than the answer has left."""

    async def behind(self, cut: SegmentOffsets) -> int | None:
        """Bytes from a cut to the tail; an empty cut is the start of the stream. None if that cannot be said.

        ``InvalidArgument`` for a cut that is not of this stream, and ``CutTruncated`` for one before its history.
        """
        if self._tail is None:
            return None
        current, oldest = await self._context.current_epoch(), (await self._context.history()).oldest_epoch
        placed: PlacedCut | None = await place_in(self._context, cut) if cut else None
        epochs = current.epoch - (placed.first_epoch if placed else oldest) + 1
        if epochs > epochs_max or not self._has_room(epochs * len(current.segments)) or (not placed and oldest):
            self.was_too_long = True
            return None
        return await bytes_between(self._context, placed, await place_in(self._context, self._tail))

    def _has_room(self, segments: int) -> bool:
        if self._room is None:
            return segments <= segments_read_max
        if segments > self._room.segments:
            return False
        self._room.segments -= segments
        return True
