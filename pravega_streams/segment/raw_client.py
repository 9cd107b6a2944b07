"""Sends requests to the store that owns a segment, with the retries that are safe."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from pravega_common.errors import PravegaError, Unavailable, UnknownOutcome
from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.runtime.deadline import Deadline
from pravega_common.runtime.joined import all_ended
from pravega_common.wire import commands as c
from pravega_common.wire.versions import BATCHES
from pravega_streams.connection.asynchronous import ConnectionPool, WireConnection
from pravega_streams.connection.batches import SegmentBatch, SegmentCall
from pravega_streams.connection.endpoints import Endpoint, EndpointResolver
from pravega_streams.connection.owned_answer import answer_of_owner
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

T = TypeVar("T")
R = TypeVar("R", bound=c.Command)


class RawClient:
    """Sends one command about one segment and gives its good reply; failure replies are raised as errors.

    A store that does not own the segment, or cannot be reached, is retried elsewhere until ``call_time_max_s`` is
    over. A lost connection after sending is retried only if the caller says that the request is idempotent; else
    it is ``UnknownOutcome``.
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
        while True:
            try:
                return await self._once(segment, make, expect, deadline)
            except PravegaError as error:
                if not error.may_be_repeated(idempotent=idempotent):
                    raise
                failure = error
            self._resolver.forget(segment)
            if deadline.remaining_s <= delay_s:
                raise failure
            await self._clock.sleep(delay_s)
            delay_s = min(delay_s * 2, retry_delay_max_s)

    async def call_many(self, calls: Sequence[SegmentCall[R]], *, idempotent: bool) -> list[R | PravegaError]:
        """One command about each of many segments, and an outcome for each, in order: what ``call`` gives or raises.

        Those of one store travel in batches; a plain Pravega gets each by itself. Outcomes do not depend on each other,
        and two commands about one segment are done in no certain order.
        """
        outcomes: dict[int, R | PravegaError] = {}
        left = list(range(len(calls)))
        deadline = Deadline.after(self._clock, self._call_time_s)
        delay_s = retry_delay_min_s
        while left:
            found = await self._once_each([calls[index] for index in left], deadline)
            outcomes.update(zip(left, found, strict=True))
            left = [index for index in left if _may_be_repeated(outcomes[index], idempotent)]
            if not left or deadline.remaining_s <= delay_s:
                break
            for index in left:
                self._resolver.forget(calls[index].segment)
            await self._clock.sleep(delay_s)
            delay_s = min(delay_s * 2, retry_delay_max_s)
        return [outcomes[index] for index in range(len(calls))]

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
            async with asyncio.timeout(deadline.remaining_s):
                connection = await self._pool.get(endpoint)
                hello = asyncio.ensure_future(connection.knows(BATCHES))
                knows = await answer_of_owner(hello, self._resolver, calls[0].segment, endpoint)
                batches = _batches([await self._with_token(call) for call in calls]) if knows else None
        except TimeoutError:
            return [Unavailable(f"{endpoint} said no Hello within {self._call_time_s} s") for _ in calls]
        except PravegaError as error:
            return [error for _ in calls]
        slots = asyncio.Semaphore(calls_at_store_max if batches is None else batches_at_store_max)

        async def alone(call: SegmentCall[R]) -> list[R | PravegaError]:
            async with slots:
                try:
                    return [await self._once(call.segment, call.make, call.expect, deadline)]
                except PravegaError as error:
                    return [error]

        async def together(batch: SegmentBatch[R]) -> list[R | PravegaError]:
            async with slots:
                try:
                    reply = await self._reply(connection, batch.calls[0].segment, batch.command, deadline)
                    return batch.outcomes(reply, connection.close)
                except PravegaError as error:
                    return [error for _ in batch.calls]

        found = await all_ended(map(alone, calls) if batches is None else map(together, batches))
        return [outcome for some in found for outcome in some]

    async def _once(self, segment: str, make: MakeCommand, expect: type[R], deadline: Deadline) -> R:
        connection = await self._pool.get(await self._resolver.resolve(segment))
        make = with_token(make, await self._resolver.token(segment))
        reply = await self._reply(connection, segment, make, deadline)
        return expected_reply(reply, segment, (expect,), connection.close)

    async def _with_token(self, call: SegmentCall[R]) -> SegmentCall[R]:
        return replace(call, make=with_token(call.make, await self._resolver.token(call.segment)))

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


def _may_be_repeated(outcome: c.Command | PravegaError, idempotent: bool) -> bool:
    return isinstance(outcome, PravegaError) and outcome.may_be_repeated(idempotent=idempotent)


def _batches(calls: Iterable[SegmentCall[R]]) -> list[SegmentBatch[R]]:
    batches = [SegmentBatch[R]()]
    for call in calls:
        if not batches[-1].add(call):
            batches.append(SegmentBatch[R]())
            batches[-1].add(call)
    return batches
