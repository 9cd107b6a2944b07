"""Sends requests to the store that owns a segment, with the retries that are safe."""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from pravega_common.errors import PravegaError, UnknownOutcome
from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.runtime.deadline import Deadline
from pravega_common.wire import commands as c
from pravega_streams.connection.asynchronous import ConnectionPool, MakeCommand
from pravega_streams.connection.endpoints import EndpointResolver
from pravega_streams.connection.replies import expected_reply
from pravega_streams.connection.silence import answer_of_owner

call_time_max_s: Final = 60.0
retry_delay_min_s: Final = 0.01
retry_delay_max_s: Final = 1.0

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

    async def _once(self, segment: str, make: MakeCommand, expect: type[R], deadline: Deadline) -> R:
        connection = await self._pool.get(await self._resolver.resolve(segment))
        try:
            async with asyncio.timeout(deadline.remaining_s):
                answer = asyncio.ensure_future(connection.call(make))
                reply = await answer_of_owner(answer, self._resolver, segment, connection.endpoint)
        except TimeoutError as error:
            raise UnknownOutcome(f"{segment}: no answer within {self._call_time_s} s") from error
        return expected_reply(reply, segment, (expect,), connection.close)

    def close(self) -> None:
        self._pool.close()
