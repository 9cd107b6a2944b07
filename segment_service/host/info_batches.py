"""Answers batches of questions about segments, which idle sources ask again and again.

A batch that came twice is remembered by its bytes. From then on it is not decoded again, and only the replies about
segments that changed meanwhile are encoded again: a look at a segment costs a microsecond or two. Batches that come
once, as those of a commit about its transactions, leave nothing behind.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from pravega_common.wire import codec
from pravega_common.wire import commands as wire
from pravega_common.wire.commands import ByteView
from segment_service.contracts.segment_store import SegmentState

remembered_bytes_max: Final = 4 * 1024 * 1024
"""Bytes of the batches that are remembered, of all connections together: 40 of 1,000 segments with usual names. With
what is decoded of them and their replies they take some five times as much memory."""

seen_max: Final = 1_024
"""Batches of which it is remembered that they came, by a number each."""

StateOf = Callable[[wire.GetStreamSegmentInfo], SegmentState | None]
"""What a question is answered with now; None where it has to be served by itself, as it may wait or be refused."""


class InfoBatch:
    """The questions of one batch, and the replies that were given last."""

    def __init__(self, questions: Sequence[wire.GetStreamSegmentInfo]) -> None:
        self.questions = questions
        self._states: list[SegmentState | None] = [None] * len(questions)
        self._replies: list[bytes] = [b""] * len(questions)

    def replies(self, state_of: StateOf) -> tuple[list[bytes], list[int]]:
        """The replies as of now, and the places of those that are missing, to be served one by one."""
        missing: list[int] = []
        states = self._states
        for place, question in enumerate(self.questions):
            state = state_of(question)
            if state is None:
                missing.append(place)
            elif state != states[place]:
                self._replies[place] = codec.encode(info_reply(question, state))
                states[place] = state
        return self._replies.copy(), missing


class RememberedBatches:
    """The batches of this kind that were asked last, within a limit of bytes; holds no state of a connection."""

    def __init__(self, bytes_max: int = remembered_bytes_max) -> None:
        self._bytes_max = bytes_max
        self._batches: OrderedDict[bytes, InfoBatch] = OrderedDict()
        self.bytes = 0
        """Bytes of the batches that are remembered."""
        self._seen: OrderedDict[int, None] = OrderedDict()

    def find(self, asked: bytes) -> InfoBatch | None:
        """The batch with these bytes."""
        found = self._batches.get(asked)
        if found is not None:
            self._batches.move_to_end(asked)
        return found

    def came(self, asked: bytes, batch: InfoBatch) -> None:
        """Note a batch that was not found, and keep it if it came before."""
        number = hash(asked)
        if number in self._seen:
            self.remember(asked, batch)
        self._seen[number] = None
        if len(self._seen) > seen_max:
            self._seen.popitem(last=False)

    def remember(self, asked: bytes, batch: InfoBatch) -> None:
        """Keep a batch instead of those that were not asked for longest."""
        if self._batches.get(asked) is None:
            self.bytes += len(asked)
        self._batches[asked] = batch
        while self.bytes > self._bytes_max:
            dropped, _ = self._batches.popitem(last=False)
            self.bytes -= len(dropped)


def begins_with_info(frames: Sequence[ByteView]) -> bool:
    """Whether a batch may be one of questions about segments: whether its first request is one."""
    return bool(frames) and codec.frame_type(frames[0]) == wire.GetStreamSegmentInfo.type_code


def info_reply(request: wire.GetStreamSegmentInfo, state: SegmentState) -> wire.StreamSegmentInfo:
    return wire.StreamSegmentInfo(
        request.request_id,
        request.segment,
        exists=True,
        is_sealed=state.is_sealed,
        is_deleted=False,
        last_modified=state.last_modified_ms,
        write_offset=state.length,
        start_offset=state.start_offset,
    )
