"""Asks stores about many segments in a few round trips, for code without an event loop.

All questions of a round are sent before the first answer is read. Nothing is retried: a question whose store is
another, is away, or says no has no answer, and who needs one asks about that segment alone.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from pravega_common.errors import PravegaError
from pravega_common.wire import commands as c
from pravega_common.wire.versions import (
    LOCATE_OFFSET_VERSION,
    READ_BATCHES,
    batch_read_bytes_max,
    batch_requests_max,
)
from pravega_streams.batch.range_reader import ReadSockets
from pravega_streams.connection.batches import SegmentBatch, SegmentCall
from pravega_streams.connection.blocking import WireSocket
from pravega_streams.connection.endpoints import BlockingResolver, Endpoint
from pravega_streams.connection.replies import answered_by
from pravega_streams.connection.requests import with_token
from pravega_streams.connection.silence import has_moved

questions_per_round_max: Final = 256
"""Questions that are sent before answers are read: some 30 KB to a store, so that it never waits for a reader."""
read_rounds_max: Final = 3
"""A store may send less than was asked for; how often the rest is asked for."""

MakeQuestion = Callable[[int], c.Command]
"""Makes the command with a request id."""

_log = logging.getLogger(__name__)


class PipelinedCalls:
    """Questions to the stores of one cluster; shares idle connections with range readers. For one thread."""

    def __init__(self, resolver: BlockingResolver, sockets: ReadSockets) -> None:
        self._resolver = resolver
        self._sockets = sockets

    def ask(self, questions: Mapping[str, MakeQuestion], since_version: int = 0) -> dict[str, c.Command]:
        """The reply to the question about each segment, good or bad; without those that got none.

        Questions must be idempotent. A store whose protocol is older than ``since_version`` is not asked.
        """
        replies: dict[str, c.Command] = {}
        for some in _in_rounds(questions):
            replies.update(self._round(some, since_version))
        return replies

    def read(self, ranges: Mapping[str, tuple[int, int]]) -> dict[str, memoryview]:
        """The bytes from the beginning of the range of each segment on, as many as came; left out where none did.

        The ranges must have been written, and are meant to be some kilobytes each.
        """
        parts: dict[str, list[memoryview]] = {}
        left = {segment: (start, end) for segment, (start, end) in ranges.items() if start < end}
        for _ in range(read_rounds_max):
            replies = self._reads(left)
            left_before, left = left, {}
            for segment, reply in replies.items():
                start, end = left_before[segment]
                if not isinstance(reply, c.SegmentRead) or reply.offset != start or not len(reply.data):
                    continue
                data = memoryview(reply.data)[: end - start]
                parts.setdefault(segment, []).append(data)
                if len(data) < end - start and not reply.end_of_segment:
                    left[segment] = (start + len(data), end)
            if not left:
                break
        return {segment: some[0] if len(some) == 1 else memoryview(b"".join(some)) for segment, some in parts.items()}

    def locate(self, offsets: Mapping[str, int]) -> dict[str, int]:
        """The smallest known event boundary at or after an offset of each segment; left out where none came."""
        replies = self.ask(
            {segment: _locate(segment, offset) for segment, offset in offsets.items()}, LOCATE_OFFSET_VERSION
        )
        return {segment: reply.offset for segment, reply in replies.items() if isinstance(reply, c.OffsetLocated)}

    def _reads(self, ranges: Mapping[str, tuple[int, int]]) -> dict[str, c.Command]:
        """The answer to a read of each range: in batches from stores that know those, else one by one."""
        replies: dict[str, c.Command] = {}
        alone: dict[str, MakeQuestion] = {}
        for some in _in_batches(ranges):
            questions = {segment: _read_of(segment, *span) for segment, span in some.items()}
            sent = []
            for endpoint, segments in self._by_store(questions).items():
                asked = self._sent_batch(endpoint, {segment: questions[segment] for segment in segments})
                if asked is None:
                    alone.update({segment: questions[segment] for segment in segments})
                else:
                    sent.append(asked)
            for connection, request_id, batch in sent:
                self._receive_batch(connection, request_id, batch, replies)
        return {**replies, **self.ask(alone)}

    def _sent_batch(
        self, endpoint: Endpoint, questions: Mapping[str, MakeQuestion]
    ) -> tuple[WireSocket, int, SegmentBatch[c.SegmentRead]] | None:
        """The connection, and the batch with its request id; None for a store that takes none, or cannot be asked."""
        try:
            connection = self._sockets.take(endpoint)
            if not connection.knows(READ_BATCHES):
                self._sockets.give_back(endpoint, connection)
                return None
            batch = SegmentBatch[c.SegmentRead]()
            for segment, make in questions.items():
                token = self._resolver.token(segment)
                if not batch.add(SegmentCall(segment, with_token(make, token), c.SegmentRead)):
                    break  # Of very long names: who needs one asks about it alone.
            request_id = connection.next_request_id()
            connection.send(batch.command(request_id))
        except PravegaError as error:
            _log.info("the store at %s is not asked about %d segments: %s", endpoint, len(questions), error)
            return None
        return connection, request_id, batch

    def _receive_batch(
        self,
        connection: WireSocket,
        request_id: int,
        batch: SegmentBatch[c.SegmentRead],
        replies: dict[str, c.Command],
    ) -> None:
        one = batch.calls[0].segment

        def is_elsewhere() -> bool:
            return has_moved(self._resolver, one, connection.endpoint)

        try:
            reply = connection.receive(is_elsewhere)
            while getattr(reply, "request_id", -1) != request_id:
                reply = connection.receive(is_elsewhere)
            outcomes = batch.outcomes(reply, lambda _: connection.close())
        except PravegaError as error:
            _log.info("%d reads got no answer: %s", len(batch.calls), error)
            connection.close()
            self._resolver.forget(one)
            return
        replies.update(
            {
                call.segment: outcome
                for call, outcome in zip(batch.calls, outcomes, strict=True)
                if isinstance(outcome, c.SegmentRead)
            }
        )
        self._sockets.give_back(connection.endpoint, connection)

    def _by_store(self, questions: Mapping[str, MakeQuestion]) -> dict[Endpoint, list[str]]:
        by_store: dict[Endpoint, list[str]] = {}
        try:
            for segment in questions:
                by_store.setdefault(self._resolver.resolve(segment), []).append(segment)
        except PravegaError as error:
            _log.info("not all segments are asked about together: %s", error)
        return by_store

    def _round(self, questions: Mapping[str, MakeQuestion], since_version: int) -> dict[str, c.Command]:
        replies: dict[str, c.Command] = {}
        sent = []
        for endpoint, segments in self._by_store(questions).items():
            asked = self._sent(endpoint, {segment: questions[segment] for segment in segments}, since_version)
            if asked is not None:
                sent.append(asked)
        for connection, waiting, names in sent:
            self._receive(connection, waiting, names, replies)
        return replies

    def _sent(
        self, endpoint: Endpoint, questions: Mapping[str, MakeQuestion], since_version: int
    ) -> tuple[WireSocket, dict[int, c.Command], dict[int, str]] | None:
        """The connection, and the requests and their segments by id; None where the store cannot be asked."""
        try:
            connection = self._sockets.take(endpoint)
            if since_version and connection.peer_version() < since_version:
                self._sockets.give_back(endpoint, connection)
                return None
            tokens = {segment: self._resolver.token(segment) for segment in questions}
            segments = {connection.next_request_id(): segment for segment in questions}
            waiting = {rid: with_token(questions[one], tokens[one])(rid) for rid, one in segments.items()}
            connection.send(*waiting.values())
        except PravegaError as error:
            _log.info("the store at %s is not asked about %d segments: %s", endpoint, len(questions), error)
            return None
        return connection, waiting, segments

    def _receive(
        self,
        connection: WireSocket,
        waiting: dict[int, c.Command],
        segments: Mapping[int, str],
        replies: dict[str, c.Command],
    ) -> None:
        try:
            one = segments[next(iter(waiting))]
            while waiting:
                reply = connection.receive(lambda: has_moved(self._resolver, one, connection.endpoint))
                answered = answered_by(reply, waiting)
                if answered is not None:
                    del waiting[answered]
                    replies[segments[answered]] = reply
        except PravegaError as error:
            _log.info("%d questions got no answer: %s", len(waiting), error)
            connection.close()  # What was sent is still to be answered.
            self._resolver.forget(segments[next(iter(waiting))])
            return
        self._sockets.give_back(connection.endpoint, connection)


def _in_rounds(questions: Mapping[str, MakeQuestion]) -> Iterator[dict[str, MakeQuestion]]:
    items = iter(questions.items())
    while some := dict(itertools.islice(items, questions_per_round_max)):
        yield some


def _in_batches(ranges: Mapping[str, tuple[int, int]]) -> Iterator[dict[str, tuple[int, int]]]:
    """The ranges in parts that one batch takes, also where all are of one store; a long one in a part of its own."""
    some: dict[str, tuple[int, int]] = {}
    left = batch_read_bytes_max
    for segment, (start, end) in ranges.items():
        length = min(end - start, batch_read_bytes_max)
        if some and (length > left or len(some) == batch_requests_max):
            yield some
            some, left = {}, batch_read_bytes_max
        some[segment] = (start, start + length)
        left -= length
    if some:
        yield some


def _read_of(segment: str, start: int, end: int) -> MakeQuestion:
    return lambda request_id: c.ReadSegment(segment, start, end - start, "", request_id)


def _locate(segment: str, offset: int) -> MakeQuestion:
    return lambda request_id: c.LocateOffset(request_id, segment, offset, "")
