"""Asks stores about single segments, for code without an event loop."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Final, Protocol, TypeVar, overload

from pravega_common.errors import (
    ContainerNotHosted,
    InvalidArgument,
    Outcome,
    PravegaError,
    SegmentNotFound,
    Unavailable,
    UnknownOutcome,
    UnsupportedOperation,
)
from pravega_common.model.segments import SegmentInfo
from pravega_common.names import INDEX_SUFFIX, SegmentName, parse_segment_name
from pravega_common.wire import commands as c
from pravega_common.wire.versions import BATCHES, LOCATE_OFFSET_VERSION, batch_requests_max
from pravega_streams.connection.batches import SegmentBatch, SegmentCall
from pravega_streams.connection.blocking import WireSocket
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.connection.idle_ends import IdleEnds
from pravega_streams.connection.repeated_calls import doubt_about_call
from pravega_streams.connection.replies import expected_reply
from pravega_streams.connection.requests import MakeCommand, with_token
from pravega_streams.connection.silence import has_moved
from pravega_streams.controller.stream_tokens import StreamTokens

call_time_max_s: Final = 60.0
retry_delay_min_s: Final = 0.01
retry_delay_max_s: Final = 1.0
infos_per_round_max: Final = 256
"""Questions that are sent to the stores before their answers are read: some 20 KB each way, so nobody blocks."""

info_batches_kept_max: Final = 8
"""Batches of questions that are kept: an idle source asks the same ones again and again. Some 0.4 MB each."""
endpoints_cached_max: Final = 10_000
"""Segments whose store is remembered."""

T = TypeVar("T")
R = TypeVar("R", bound=c.Command)


class StoreDirectory(Protocol):
    """Knows which store owns a segment: the controller."""

    @property
    def tokens(self) -> StreamTokens: ...

    def endpoint(self, scope: str, stream: str, segment_id: int) -> Endpoint: ...


class EndpointCache:
    """The store of each segment, asked of the controller once, and again after ``forget``."""

    def __init__(self, controller: StoreDirectory) -> None:
        self._controller = controller
        self._endpoints: dict[str, Endpoint] = {}

    def resolve(self, segment: str) -> Endpoint:
        """By qualified segment name; a transaction's or an index segment lives where its parent does."""
        endpoint = self.known(segment)
        if endpoint is None:
            parsed = _parsed(segment)
            endpoint = self._controller.endpoint(parsed.scope, parsed.stream, parsed.segment_id)
            self.note(segment, endpoint)
        return endpoint

    def known(self, segment: str) -> Endpoint | None:
        """The store of a segment if it is known without asking."""
        return self._endpoints.get(_stream_segment(segment))

    def note(self, segment: str, endpoint: Endpoint) -> None:
        """A store has answered for a segment."""
        if len(self._endpoints) >= endpoints_cached_max:
            self._endpoints.clear()
        self._endpoints[_stream_segment(segment)] = endpoint

    def token(self, segment: str) -> str:
        """The token to show the store with a request about a segment; empty for a client without credentials."""
        return self._controller.tokens.of_segment(segment)

    def forget(self, segment: str) -> None:
        """The store was not the owner, did not answer or did not take the token: containers move together, so the
        addresses that name this store are dropped. Those of other stores stay, as with ``AsyncController.forget``."""
        gone = self.known(segment)
        if gone is not None:
            for name, endpoint in tuple(self._endpoints.items()):  # Other threads note what they find.
                if endpoint == gone:
                    self._endpoints.pop(name, None)
        self._controller.tokens.forget(segment)


def _parsed(segment: str) -> SegmentName:
    return parse_segment_name(segment.removesuffix(INDEX_SUFFIX))


@lru_cache(maxsize=endpoints_cached_max)
def _stream_segment(segment: str) -> str:
    """The name of a segment without what it has for a transaction or an index."""
    return _parsed(segment).stream_segment


class SegmentClient:
    """Blocking calls, one connection per store, safe to use from several threads (one call at a time).

    A connection that no call uses for ``idle_time_max_s`` is closed with the next call to another store.

    Retries as ``RawClient`` does.
    Errors: ``SegmentNotFound``, ``SegmentTruncated``, ``Unavailable``, ``UnknownOutcome``; ``InvalidArgument`` at once
    when it is closed before the call or meanwhile, ``UnknownOutcome`` if a request was on its way by then.
    """

    def __init__(
        self,
        controller: StoreDirectory,
        *,
        call_time_s: float = call_time_max_s,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoints = EndpointCache(controller)
        self._call_time_s = call_time_s
        self._sockets: dict[Endpoint, WireSocket] = {}
        self._ends = IdleEnds[Endpoint](monotonic_s)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._info_batch = lru_cache(maxsize=info_batches_kept_max)(_InfoBatch)

    def info(self, segment: str) -> SegmentInfo:
        reply = self.call(
            segment, lambda rid: c.GetStreamSegmentInfo(rid, segment), c.StreamSegmentInfo, idempotent=True
        )
        return _info_of(reply)

    def infos(self, segments: Iterable[str]) -> dict[str, SegmentInfo]:
        """The same of many segments, by name; those that do not exist are left out.

        Costs a call for 1,000 segments of a store and one look-up for each store, not one for each segment; a plain
        Pravega is asked about each, in few round trips.
        """
        found: dict[str, SegmentInfo] = {}
        left = dict.fromkeys(segments)
        if left:
            self._repeated(lambda: self._ask_about(left, found), idempotent=True)
        return found

    def _ask_about(self, left: dict[str, None], found: dict[str, SegmentInfo]) -> None:
        """Ask about all that are ``left`` and take out what is answered; raises what kept others back.

        The store of the first is asked about all whose store is not known: where it is not their owner it says so.
        """
        waiting, refused = dict(left), set[tuple[str, Endpoint]]()
        failure: PravegaError | None = None
        while waiting:
            first = next(iter(waiting))
            with self._doubting(first, idempotent=True):
                connection = self._connection(first)
                asked, answers = self._ask_store(connection, waiting, refused)
            if isinstance(answers, _Unchanged):  # Its owner was noted when they came first.
                found.update(answers.by_name)
                for segment in asked:
                    del waiting[segment], left[segment]
                continue
            if not asked:
                del waiting[first]  # It is refused by its own store: asked again later.
            self._forget_failed(asked, answers, connection.endpoint)
            for segment, answer in zip(asked, answers, strict=True):
                if isinstance(answer, ContainerNotHosted):
                    refused.add((segment, connection.endpoint))
                    failure = answer
                    continue
                del waiting[segment]
                if isinstance(answer, SegmentInfo):
                    self.endpoints.note(segment, connection.endpoint)
                    found[segment] = answer
                elif not isinstance(answer, SegmentNotFound):
                    failure = answer
                    if not answer.may_be_repeated(idempotent=True):
                        raise answer
                    continue
                del left[segment]
        if left:
            raise failure or Unavailable(f"no store is known for {next(iter(left))}")

    def _forget_failed(
        self, asked: Sequence[str], answers: Sequence[SegmentInfo | PravegaError], endpoint: Endpoint
    ) -> None:
        """Forget the store, and the tokens, of what got no good answer; comes before the store is noted for the rest.
        One that was asked without being known as the owner may well be none."""
        for segment, answer in zip(asked, answers, strict=True):
            if isinstance(answer, SegmentInfo) or not answer.may_be_repeated(idempotent=True):
                continue
            if not isinstance(answer, ContainerNotHosted) or self.endpoints.known(segment) == endpoint:
                self.endpoints.forget(segment)

    def _ask_store(
        self, connection: WireSocket, waiting: dict[str, None], refused: set[tuple[str, Endpoint]]
    ) -> tuple[list[str], list[SegmentInfo | PravegaError]]:
        """Ask one store about as many segments as it takes at once; those segments, and an answer for each."""
        endpoint = connection.endpoint

        def is_elsewhere() -> bool:
            return has_moved(self.endpoints, next(iter(waiting)), endpoint)

        if not connection.knows(BATCHES, is_elsewhere):
            owned = (one for one in waiting if self.endpoints.resolve(one) == endpoint)
            asked = [one for one in owned if (one, endpoint) not in refused][:infos_per_round_max]
            return asked, [_info_of(answer) for answer in _ask_each(connection, asked, self.endpoints.token)]
        owned = (one for one in waiting if (self.endpoints.known(one) or endpoint) == endpoint)
        together = tuple(islice((one for one in owned if (one, endpoint) not in refused), batch_requests_max))
        if not together:
            return [], []
        batch = self._info_batch(together, tuple(map(self.endpoints.token, together)))
        reply = connection.call(batch.command, is_elsewhere)
        return batch.segments, batch.infos(reply, lambda _: connection.close())

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
        """Give the connections up, for good. A call of another thread that is under way ends, too, and closes them:
        it may be waiting for a controller, which this does not."""
        self._closed.set()
        for connection in list(self._sockets.values()):
            connection.hang_up()
        if self._lock.acquire(blocking=False):
            try:
                self._close_all()
            finally:
                self._lock.release()

    def _close_all(self) -> None:
        for connection in self._sockets.values():
            connection.close()
        self._sockets.clear()

    def _check_open(self, failure: PravegaError | None = None) -> None:
        """Refuse a call of a closed client; ``failure``: what its attempts came to, the last of which closing may have
        ended."""
        if not self._closed.is_set():
            return
        if failure is not None and failure.outcome is Outcome.UNKNOWN:
            raise UnknownOutcome(f"the client of segments was closed before an answer came: {failure}") from failure
        raise InvalidArgument("the client of segments is closed; make another one") from failure

    def call(self, segment: str, make: MakeCommand, expect: type[R], *, idempotent: bool, since_version: int = 0) -> R:
        """One command about one segment and its good reply; failure replies are raised as errors.

        A store whose protocol is older than ``since_version`` is not asked: ``UnsupportedOperation``.
        """

        def attempt() -> R:
            with self._doubting(segment, idempotent=idempotent):
                return self._once(segment, make, expect, since_version)

        return self._repeated(attempt, idempotent=idempotent)

    @contextlib.contextmanager
    def _doubting(self, segment: str, *, idempotent: bool) -> Iterator[None]:
        """Have the owner of the segment looked for again if what is inside fails and is to be repeated."""
        try:
            yield
        except PravegaError as error:
            if error.may_be_repeated(idempotent=idempotent):
                self.endpoints.forget(segment)
            raise

    def _repeated(self, attempt: Callable[[], T], *, idempotent: bool) -> T:
        """The result of an attempt, which is made again where that is safe, in the time of a call. One that fails has
        forgotten whose owner is to be looked for again."""
        deadline_s = time.monotonic() + self._call_time_s
        delay_s = retry_delay_min_s
        unknown: PravegaError | None = None
        while True:
            try:
                with self._lock:
                    self._check_open(unknown)
                    try:
                        return attempt()
                    finally:
                        if self._closed.is_set():
                            self._close_all()
            except PravegaError as error:
                doubt = doubt_about_call(error, unknown, is_closed=self._closed.is_set())
                if not error.may_be_repeated(idempotent=idempotent):
                    if doubt is not None:
                        raise doubt from error
                    raise
                failure = doubt or error
                if error.outcome is Outcome.UNKNOWN:
                    unknown = error
            self._check_open(failure)
            if time.monotonic() + delay_s > deadline_s:
                raise failure
            self._closed.wait(delay_s)
            self._check_open(failure)
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
        make = with_token(make, self.endpoints.token(segment))
        reply = connection.call(make, is_elsewhere)
        return expected_reply(reply, segment, (expect,), lambda _: connection.close(), make)

    def _connection(self, segment: str) -> WireSocket:
        endpoint = self.endpoints.resolve(segment)
        self._ends.used(endpoint)
        for unused in self._ends.ended():
            if unused in self._sockets:
                self._sockets.pop(unused).close()
        connection = self._sockets.get(endpoint)
        if connection is None or not connection.is_open:
            connection = WireSocket(endpoint)
            self._sockets[endpoint] = connection
            self._check_open()  # Who closes the client may not have seen it.
        return connection


class _Unchanged(list[SegmentInfo | PravegaError]):
    """Answers that a store gave before, byte by byte, all of them good."""

    def __init__(self, infos: Iterable[SegmentInfo]) -> None:
        super().__init__(infos)
        self.by_name = {info.name: info for info in self if isinstance(info, SegmentInfo)}


class _InfoBatch:
    """A question about each of as many segments, from the first on, as a batch takes; for one caller at a time.

    An idle source asks the same again and again: answers that did not change are not decoded again.
    """

    def __init__(self, segments: tuple[str, ...], tokens: tuple[str, ...]) -> None:
        """``tokens``: those to show with the question about each."""
        self._batch = SegmentBatch[c.StreamSegmentInfo]()
        for segment, token in zip(segments, tokens, strict=True):
            if not self._batch.add(_info_call(segment, token)):
                break
        self.segments = [call.segment for call in self._batch.calls]
        self.command = self._batch.command
        self._replies = b""
        self._known: _Unchanged | None = None

    def infos(self, reply: c.Command, close: Callable[[str], None]) -> list[SegmentInfo | PravegaError]:
        """The answer about each; raises as ``SegmentBatch.outcomes``."""
        replies = b"".join(reply.replies) if isinstance(reply, c.RequestBatchAnswered) else b""
        if self._known is not None and replies == self._replies:
            return self._known
        answers = [_info_of(answer) for answer in self._batch.outcomes(reply, close)]
        infos = [answer for answer in answers if isinstance(answer, SegmentInfo)]
        self._replies, self._known = replies, _Unchanged(infos) if len(infos) == len(answers) else None
        return answers


def _info_call(segment: str, token: str) -> SegmentCall[c.StreamSegmentInfo]:
    return SegmentCall(segment, lambda rid: c.GetStreamSegmentInfo(rid, segment, token), c.StreamSegmentInfo)


def _ask_each(
    connection: WireSocket, segments: Sequence[str], token: Callable[[str], str]
) -> list[c.StreamSegmentInfo | PravegaError]:
    """One question for each segment, sent before the first answer is read."""
    calls = [_info_call(segment, token(segment)) for segment in segments]
    places = {connection.next_request_id(): place for place in range(len(calls))}
    answers: dict[int, c.StreamSegmentInfo | PravegaError] = {}
    try:
        connection.send(*(calls[place].make(rid) for rid, place in places.items()))
        while len(answers) < len(segments):
            reply = connection.receive()
            place = places.get(getattr(reply, "request_id", -1))
            if place is not None:
                answers[place] = _answer(reply, calls[place], connection)
    except BaseException:
        # What was sent is still to be answered: other calls must not wait for it, nor count on the connection.
        connection.close()
        raise
    return [answers[place] for place in range(len(segments))]


def _answer(
    reply: c.Command, call: SegmentCall[c.StreamSegmentInfo], connection: WireSocket
) -> c.StreamSegmentInfo | PravegaError:
    try:
        return expected_reply(reply, call.segment, (call.expect,), lambda _: connection.close(), call.make)
    except PravegaError as error:
        return error


@overload
def _info_of(reply: c.StreamSegmentInfo) -> SegmentInfo: ...
@overload
def _info_of(reply: c.StreamSegmentInfo | PravegaError) -> SegmentInfo | PravegaError: ...
def _info_of(reply: c.StreamSegmentInfo | PravegaError) -> SegmentInfo | PravegaError:
    if isinstance(reply, PravegaError):
        return reply
    return SegmentInfo(reply.segment, reply.start_offset, reply.write_offset, reply.is_sealed, reply.last_modified)
