"""Answers batches of reads: short ranges of many segments, which a reader's plan needs together.

A read of a batch never waits at the tail: where there is nothing yet, its reply says so (NoReply).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from pravega_common.runtime.joined import all_ended
from pravega_common.runtime.time_slices import TimeSlices
from pravega_common.wire import codec
from pravega_common.wire import commands as wire
from pravega_common.wire.commands import ByteView, Command
from pravega_common.wire.versions import batch_read_bytes_max
from segment_service.contracts.segment_store import ReadResult

reads_at_work_max: Final = 256
"""Reads of one batch that are being served at a time."""

ReadInMemory = Callable[[wire.ReadSegment], ReadResult | None]
"""Serves one read without waiting; None where it has to wait, or is refused."""
Read = Callable[[wire.ReadSegment], Coroutine[Any, Any, ReadResult | Command]]
"""Serves one read without waiting at a tail; the reply that says why there are no bytes."""


def begins_with_read(frames: Sequence[ByteView]) -> bool:
    """Whether a batch must be one of reads: whether its first request is one."""
    return bool(frames) and codec.frame_type(frames[0]) == wire.ReadSegment.type_code


def refusal(request_id: int, reads: Sequence[wire.ReadSegment]) -> Command | None:
    """The reply to a batch that asks for too much; nothing of it is read."""
    asked = sum(max(0, read.suggested_length) for read in reads)
    if asked <= batch_read_bytes_max:
        return None
    reason = f"a batch of reads of {asked} bytes; the limit is {batch_read_bytes_max}"
    return wire.ErrorMessage(request_id, "", reason, wire.ILLEGAL_ARGUMENT)


class ReadBatches:
    """Serves the reads of a batch; holds no state of a connection."""

    def __init__(self, read_in_memory: ReadInMemory, read: Read, note_sent: Callable[[str, int], None]) -> None:
        """``note_sent`` counts the bytes of a segment that are sent."""
        self._read_in_memory = read_in_memory
        self._read = read
        self._note_sent = note_sent

    async def replies(self, reads: Sequence[wire.ReadSegment], slices: TimeSlices) -> list[bytes]:
        """The frames that would have answered each alone; those in memory without a task for each."""
        replies: list[bytes] = []
        for first in range(0, len(reads), reads_at_work_max):
            some = reads[first : first + reads_at_work_max]
            found: list[ReadResult | Command | None] = [self._read_in_memory(read) for read in some]
            waiting = [place for place, one in enumerate(found) if one is None]
            answers = await all_ended(self._read(some[place]) for place in waiting)
            for place, answer in zip(waiting, answers, strict=True):
                found[place] = answer
            replies += [self._frame(read, one) for read, one in zip(some, found, strict=True) if one is not None]
            await slices.step()
        return replies

    def _frame(self, request: wire.ReadSegment, found: ReadResult | Command) -> bytes:
        if not isinstance(found, ReadResult):
            return codec.encode(found)
        self._note_sent(request.segment, found.length)
        return b"".join(reply_parts(request, found))


def reply_parts(request: wire.ReadSegment, found: ReadResult) -> list[bytes | memoryview]:
    """Encodes the reply to a read of a segment; its bytes are not copied."""
    return codec.segment_read_parts(
        request.segment,
        request.offset,
        at_tail=found.at_tail,
        end_of_segment=found.end_of_segment,
        data=found.data,
        request_id=request.request_id,
    )
