"""Asks stores about single segments, for code without an event loop."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable
from typing import Final, TypeVar

from pravega_common.errors import (
    PravegaError,
    SegmentNotFound,
    UnsupportedOperation,
)
from pravega_common.model.segments import SegmentInfo
from pravega_common.names import INDEX_SUFFIX, parse_segment_name
from pravega_common.wire import commands as c
from pravega_common.wire.versions import LOCATE_OFFSET_VERSION
from pravega_streams.connection.asynchronous import MakeCommand
from pravega_streams.connection.blocking import WireSocket
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.connection.replies import expected_reply
from pravega_streams.connection.silence import has_moved
from pravega_streams.controller.client import ControllerClient

call_time_max_s: Final = 60.0
retry_delay_min_s: Final = 0.01
retry_delay_max_s: Final = 1.0
infos_per_round_max: Final = 256
"""Questions that are sent to the stores before their answers are read: some 20 KB each way, so nobody blocks."""

R = TypeVar("R", bound=c.Command)


class EndpointCache:
    """The store of each segment, asked of the controller once, and again after ``forget``."""

    def __init__(self, controller: ControllerClient) -> None:
        self._controller = controller
        self._endpoints: dict[str, Endpoint] = {}

    def resolve(self, segment: str) -> Endpoint:
        """By qualified segment name; a transaction's or an index segment lives where its parent does."""
        parsed = parse_segment_name(segment.removesuffix(INDEX_SUFFIX))
        parent = f"{parsed.scope}/{parsed.stream}/{parsed.segment_id}"
        endpoint = self._endpoints.get(parent)
        if endpoint is None:
            endpoint = self._controller.endpoint(parsed.scope, parsed.stream, parsed.segment_id)
            self._endpoints[parent] = endpoint
        return endpoint

    def forget(self, segment: str) -> None:
        """The store was not the owner or did not answer: containers move together, so all answers are dropped."""
        self._endpoints.clear()


class SegmentClient:
    """Blocking calls, one connection per store, safe to use from several threads (one call at a time).

    Retries as ``RawClient`` does.
    Errors: ``SegmentNotFound``, ``SegmentTruncated``, ``Unavailable``, ``UnknownOutcome``.
    """

    def __init__(self, controller: ControllerClient, *, call_time_s: float = call_time_max_s) -> None:
        self.endpoints = EndpointCache(controller)
        self._call_time_s = call_time_s
        self._sockets: dict[Endpoint, WireSocket] = {}
        self._lock = threading.Lock()

    def info(self, segment: str) -> SegmentInfo:
        reply = self.call(
            segment, lambda rid: c.GetStreamSegmentInfo(rid, segment), c.StreamSegmentInfo, idempotent=True
        )
        return _info_of(reply)

    def infos(self, segments: Iterable[str]) -> dict[str, SegmentInfo]:
        """The same of many segments, by name; those that do not exist are left out.

        Costs a few round trips to each store, not one for each segment.
        """
        found: dict[str, SegmentInfo] = {}
        left = list(segments)
        for start in range(0, len(left), infos_per_round_max):
            with self._lock:
                found.update(self._asked_together(left[start : start + infos_per_round_max]))
        for segment in left:
            if segment not in found:  # It is not there, or its store is another or did not answer: that takes time.
                with contextlib.suppress(SegmentNotFound):
                    found[segment] = self.info(segment)
        return found

    def _asked_together(self, segments: list[str]) -> dict[str, SegmentInfo]:
        """One question for each segment, sent before the first answer is read; without those that had no good one."""
        waiting: dict[WireSocket, set[int]] = {}
        found: dict[str, SegmentInfo] = {}
        try:
            for segment in segments:
                connection = self._connection(segment)
                waiting.setdefault(connection, set()).add(request_id := connection.next_request_id())
                connection.send(c.GetStreamSegmentInfo(request_id, segment))
            for connection, ids in waiting.items():
                while ids:
                    reply = connection.receive()
                    ids.discard(getattr(reply, "request_id", -1))
                    if isinstance(reply, c.StreamSegmentInfo):
                        found[reply.segment] = _info_of(reply)
        except PravegaError as error:
            if not error.may_be_repeated(idempotent=True):
                raise
            # What was sent is still to be answered: other calls must not wait for it, nor count on the connection.
            for connection in waiting:
                connection.close()
        return found

    def attribute(self, segment: str, attribute_id: bytes) -> int:
        """The value, or ``NULL_ATTRIBUTE_VALUE``."""
        reply = self.call(
            segment,
            lambda rid: c.GetSegmentAttribute(rid, segment, attribute_id, ""),
            c.SegmentAttribute,
            idempotent=True,
        )
        return reply.value

    def locate_offset(self, segment: str, offset: int) -> int:
        """The smallest known event boundary at or after ``offset``; ``UnsupportedOperation`` on an old store.

        A store of an older protocol would close the connection without a word, so it is not asked.
        """
        reply = self.call(
            segment,
            lambda rid: c.LocateOffset(rid, segment, offset, ""),
            c.OffsetLocated,
            idempotent=True,
            since_version=LOCATE_OFFSET_VERSION,
        )
        return reply.offset

    def truncate(self, segment: str, offset: int) -> None:
        self.call(segment, lambda rid: c.TruncateSegment(rid, segment, offset, ""), c.SegmentTruncated, idempotent=True)

    def seal(self, segment: str) -> None:
        """``SegmentSealed`` if it is sealed already."""
        self.call(segment, lambda rid: c.SealSegment(rid, segment, ""), c.SegmentSealed, idempotent=True)

    def close(self) -> None:
        for connection in self._sockets.values():
            connection.close()
        self._sockets.clear()

    def call(self, segment: str, make: MakeCommand, expect: type[R], *, idempotent: bool, since_version: int = 0) -> R:
        """One command about one segment and its good reply; failure replies are raised as errors.

        A store whose protocol is older than ``since_version`` is not asked: ``UnsupportedOperation``.
        """
        deadline_s = time.monotonic() + self._call_time_s
        delay_s = retry_delay_min_s
        while True:
            try:
                with self._lock:
                    return self._once(segment, make, expect, since_version)
            except PravegaError as error:
                if not error.may_be_repeated(idempotent=idempotent):
                    raise
                failure = error
            self.endpoints.forget(segment)
            if time.monotonic() + delay_s > deadline_s:
                raise failure
            time.sleep(delay_s)
            delay_s = min(delay_s * 2, retry_delay_max_s)

    def _once(self, segment: str, make: MakeCommand, expect: type[R], since_version: int) -> R:
        connection = self._connection(segment)

        def is_elsewhere() -> bool:
            return has_moved(self.endpoints, segment, connection.endpoint)

        if since_version and connection.peer_version(is_elsewhere) < since_version:
            raise UnsupportedOperation(
                f"{segment}: the store at {connection.endpoint} speaks version {connection.peer_version()} of the "
                f"protocol, and {expect.__name__} came with version {since_version}"
            )
        reply = connection.call(make, is_elsewhere)
        return expected_reply(reply, segment, (expect,), lambda _: connection.close())

    def _connection(self, segment: str) -> WireSocket:
        endpoint = self.endpoints.resolve(segment)
        connection = self._sockets.get(endpoint)
        if connection is None or not connection.is_open:
            connection = WireSocket(endpoint)
            self._sockets[endpoint] = connection
        return connection


def _info_of(reply: c.StreamSegmentInfo) -> SegmentInfo:
    return SegmentInfo(reply.segment, reply.start_offset, reply.write_offset, reply.is_sealed, reply.last_modified)
