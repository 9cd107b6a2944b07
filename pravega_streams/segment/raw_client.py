"""Sends requests to the store that owns a segment, with the retries that are safe."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, TypeVar

from pravega_common.errors import Outcome, PravegaError, Unavailable, UnknownOutcome
from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.runtime.deadline import Deadline
from pravega_common.runtime.joined import all_ended, each_ended
from pravega_common.wire import commands as c
from pravega_common.wire.versions import BATCHES, SEGMENT_LENGTHS
from pravega_streams.connection.asynchronous import ConnectionPool, WireConnection
from pravega_streams.connection.batches import SegmentBatch, SegmentCall
from pravega_streams.connection.endpoints import Endpoint, EndpointResolver
from pravega_streams.connection.owned_answer import answer_of_owner
from pravega_streams.connection.repeated_calls import doubt_about_call
from pravega_streams.connection.replies import expected_reply
from pravega_streams.connection.requests import MakeCommand, with_token

call_time_max_s: Final = 60.0
retry_delay_min_s: Final = 0.01
retry_delay_max_s: Final = 1.0
calls_at_store_max: Final = 256
"""Requests of one ``call_many`` outstanding at a store without batches; each container works its share off in groups. A
limit for all stores together would let those to a store that is away keep others from stores that answer."""
batches_at_store_max: Final = 4
"""Batches of one ``call_many`` outstanding at a store: a slow container holds up its own batch alone."""
calls_together_max: Final = 250
"""Requests of one batch: while the store serves it the next one is made, and the replies to the last are read."""
lengths_together_max: Final = 500
"""Segments of one question about lengths: while the store answers it the next one is made."""
lengths_time_max_s: Final = 10.0
"""How long that question is waited for before each segment is asked about by itself."""

T = TypeVar("T")
R = TypeVar("R", bound=c.Command)


class RawClient:
    """Sends one command about one segment and gives its good reply; failure replies are raised as errors.

    A store that does not own the segment, or cannot be reached, is retried elsewhere until ``call_time_max_s`` is
    over. A lost connection after sending is retried only if the caller says that the request is idempotent; else
    it is ``UnknownOutcome``. So is a call given up later with an attempt that was not done, and what has no answer when
    the client is closed; later calls are ``InvalidArgument``.
    """

    def __init__(
        self, resolver: EndpointResolver, *, clock: Clock | None = None, call_time_s: float = call_time_max_s
    ) -> None:
        self._resolver = resolver
        self._clock = clock or SystemClock()
        self._call_time_s = call_time_s
        self._pool = ConnectionPool()

    async def call(self, segment: str, make: MakeCommand, expect: type[R], *, idempotent: bool) -> R:
        deadline = Deadline.after(self._clock, self._call_time_s)
        delay_s = retry_delay_min_s
        unknown: PravegaError | None = None
        while True:
            try:
                return await self._once(segment, make, expect, deadline)
            except PravegaError as error:
                if not self._may_be_repeated(error, idempotent):
                    if (doubt := self._doubt(error, unknown)) is not None:
                        raise doubt from error
                    raise
                last = error
            self._resolver.forget(segment)
            if deadline.remaining_s <= delay_s:
                raise self._doubt(last, unknown) or last
            if last.outcome is Outcome.UNKNOWN:
                unknown = last
            await self._clock.sleep(delay_s)
            delay_s = min(delay_s * 2, retry_delay_max_s)

    async def call_many(self, calls: Sequence[SegmentCall[R]], *, idempotent: bool) -> list[R | PravegaError]:
        """One command about each of many segments, and an outcome for each, in order: what ``call`` gives or raises.

        Those of one store travel in batches; a plain Pravega gets each by itself. Outcomes do not depend on each other,
        and two commands about one segment are done in no certain order.
        """
        outcomes: dict[int, R | PravegaError] = {}
        unknown: dict[int, PravegaError] = {}
        left = list(range(len(calls)))
        deadline = Deadline.after(self._clock, self._call_time_s)
        delay_s = retry_delay_min_s
        while left:
            found = await self._once_each([calls[index] for index in left], deadline)
            outcomes.update(zip(left, found, strict=True))
            left = [index for index in left if self._may_be_repeated(outcomes[index], idempotent)]
            if not left or deadline.remaining_s <= delay_s:
                break
            for index in left:
                self._resolver.forget(calls[index].segment)
                if isinstance(last := outcomes[index], PravegaError) and last.outcome is Outcome.UNKNOWN:
                    unknown[index] = last
            await self._clock.sleep(delay_s)
            delay_s = min(delay_s * 2, retry_delay_max_s)
        for index, earlier in unknown.items():
            if isinstance(last := outcomes[index], PravegaError):
                outcomes[index] = self._doubt(last, earlier) or last
        return [outcomes[index] for index in range(len(calls))]

    async def lengths_of(self, segments: Sequence[str]) -> dict[str, int]:
        """The lengths of segments, ``NO_SEGMENT`` for one that is missing.

        Those are left out, to be asked by ``call_many``, whose store cannot tell many at once or did not answer well.
        """
        deadline = Deadline.after(self._clock, min(self._call_time_s, lengths_time_max_s))
        asked: dict[tuple[Endpoint, str], list[str]] = {}
        for segment in segments:
            try:
                key = await self._resolver.resolve(segment), await self._resolver.token(segment)
            except PravegaError:
                continue
            asked.setdefault(key, []).append(segment)

        async def ask(part: tuple[Endpoint, str, Sequence[str]]) -> list[tuple[str, int]]:
            try:
                return await self._lengths_at(*part, deadline)
            except PravegaError:
                return []

        parts = [
            (endpoint, token, names[first : first + lengths_together_max])
            for (endpoint, token), names in asked.items()
            for first in range(0, len(names), lengths_together_max)
        ]
        return dict(_joined(await each_ended(ask, parts, at_once=batches_at_store_max)))

    async def _lengths_at(
        self, endpoint: Endpoint, token: str, segments: Sequence[str], deadline: Deadline
    ) -> list[tuple[str, int]]:
        connection, knows = await self._connection(endpoint, segments[0], SEGMENT_LENGTHS, deadline)
        if not knows:
            return []
        reply = await self._reply(
            connection, segments[0], lambda rid: c.GetSegmentLengths(rid, tuple(segments), token), deadline
        )
        lengths = expected_reply(reply, segments[0], (c.SegmentLengths,), connection.close).lengths
        if len(lengths) != len(segments):
            connection.close("another number of lengths than of segments")
            raise UnknownOutcome(f"{segments[0]} and others: {len(lengths)} lengths of {len(segments)} segments")
        return list(zip(segments, lengths, strict=True))

    async def _connection(
        self, endpoint: Endpoint, segment: str, extension: int, deadline: Deadline
    ) -> tuple[WireConnection, bool]:
        """A connection to the store, and whether that knows an extension of the protocol."""
        try:
            async with asyncio.timeout(deadline.remaining_s):
                connection = await self._pool.get(endpoint)
                hello = asyncio.ensure_future(connection.knows(extension))
                return connection, await answer_of_owner(hello, self._resolver, segment, endpoint)
        except TimeoutError as error:
            raise Unavailable(f"{endpoint} said no Hello within {self._call_time_s} s") from error

    async def _once_each(self, calls: Sequence[SegmentCall[R]], deadline: Deadline) -> list[R | PravegaError]:
        """One attempt at each, at all stores together."""
        outcomes: dict[int, R | PravegaError] = {}
        at_store: dict[Endpoint, list[int]] = {}
        for index, call in enumerate(calls):
            try:
                at_store.setdefault(await self._resolver.resolve(call.segment), []).append(index)
            except PravegaError as error:
                outcomes[index] = error

        async def ask(endpoint: Endpoint, indexes: list[int]) -> None:
            found = await self._once_at(endpoint, [calls[index] for index in indexes], deadline)
            outcomes.update(zip(indexes, found, strict=True))

        await all_ended(ask(endpoint, indexes) for endpoint, indexes in at_store.items())
        return [outcomes[index] for index in range(len(calls))]

    async def _once_at(
        self, endpoint: Endpoint, calls: Sequence[SegmentCall[R]], deadline: Deadline
    ) -> list[R | PravegaError]:
        """One attempt at each, at the store that owns them."""
        try:
            connection, knows = await self._connection(endpoint, calls[0].segment, BATCHES, deadline)
        except PravegaError as error:
            return [error for _ in calls]
        if knows:
            return await self._in_batches(connection, calls, deadline)

        async def alone(call: SegmentCall[R]) -> R | PravegaError:
            try:
                return await self._once(call.segment, call.make, call.expect, deadline)
            except PravegaError as error:
                return error

        return await each_ended(alone, calls, at_once=calls_at_store_max)

    async def _in_batches(
        self, connection: WireConnection, calls: Sequence[SegmentCall[R]], deadline: Deadline
    ) -> list[R | PravegaError]:
        """One attempt at each; batches are made in turn, so that the store has one to serve before the last is made."""
        turn = asyncio.Lock()

        async def together(part: Sequence[SegmentCall[R]]) -> list[R | PravegaError]:
            try:
                async with turn, asyncio.timeout(deadline.remaining_s):
                    batches = await self._batches(part)
            except TimeoutError:
                return [Unavailable(f"no token within {self._call_time_s} s") for _ in part]
            except PravegaError as error:
                return [error for _ in part]
            return _joined([await self._answered(connection, batch, deadline) for batch in batches])

        parts = [calls[first : first + calls_together_max] for first in range(0, len(calls), calls_together_max)]
        return _joined(await each_ended(together, parts, at_once=batches_at_store_max))

    async def _batches(self, calls: Sequence[SegmentCall[R]]) -> list[SegmentBatch[R]]:
        batches = [SegmentBatch[R]()]
        for call in calls:
            token = await self._resolver.token(call.segment)
            if not batches[-1].add(call, token):
                batches.append(SegmentBatch[R]())
                batches[-1].add(call, token)
        return batches

    async def _answered(
        self, connection: WireConnection, batch: SegmentBatch[R], deadline: Deadline
    ) -> list[R | PravegaError]:
        try:
            reply = await self._reply(connection, batch.calls[0].segment, batch.command, deadline)
            return batch.outcomes(reply, connection.close)
        except PravegaError as error:
            return [error for _ in batch.calls]

    async def _once(self, segment: str, make: MakeCommand, expect: type[R], deadline: Deadline) -> R:
        connection = await self._pool.get(await self._resolver.resolve(segment))
        make = with_token(make, await self._resolver.token(segment))
        reply = await self._reply(connection, segment, make, deadline)
        return expected_reply(reply, segment, (expect,), connection.close, make)

    async def _reply(
        self, connection: WireConnection, segment: str, make: MakeCommand, deadline: Deadline
    ) -> c.Command:
        try:
            async with asyncio.timeout(deadline.remaining_s):
                answer = asyncio.ensure_future(connection.call(make))
                return await answer_of_owner(answer, self._resolver, segment, connection.endpoint)
        except TimeoutError as error:
            raise UnknownOutcome(f"{segment}: no answer within {self._call_time_s} s") from error

    def close(self) -> None:
        self._pool.close()

    def _may_be_repeated(self, outcome: c.Command | PravegaError, idempotent: bool) -> bool:
        """Whether another attempt is made. The first one after closing finds no connection: ``InvalidArgument``; what
        closing has cut off stays unknown."""
        repeats = idempotent and not self._pool.is_closed
        return isinstance(outcome, PravegaError) and outcome.may_be_repeated(idempotent=repeats)

    def _doubt(self, last: PravegaError, unknown: PravegaError | None) -> UnknownOutcome | None:
        return doubt_about_call(last, unknown, is_closed=self._pool.is_closed)


def _joined(found: Sequence[list[T]]) -> list[T]:
    return [outcome for some in found for outcome in some]
