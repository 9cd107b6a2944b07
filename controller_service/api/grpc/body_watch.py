"""Bounds the gRPC requests of which a part is here and the rest does not come.

gRPC keeps what it has of a request until the rest is there, up to the largest request, for each call of each
connection, and knows no limit for all of them together. A call's request is therefore read here, where it can be given
up: with every call, when its time is over; and while too many are open, those that are open for longest.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
from prometheus_client import Counter

from pravega_common.runtime.clock import Clock

body_time_max_s: Final = 30.0
"""Time from the beginning of a call to the end of its request, which has at most 4 MiB."""
open_max: Final = 128
"""Requests that may be open at a time; the 4 MiB of each are half a gibibyte."""
open_time_min_s: Final = 1.0
"""Time that each gets all the same: of calls that begin together none is complete at first."""
look_s: Final = 0.25
"""Pause between two looks, while a request is open."""

GIVEN_UP: Final = Counter("pravega_controller_given_up_requests", "gRPC requests that did not come in time")

_REASON: Final = "the request did not come in time: send it at once, or try again when this controller has less to do"


class BodyWatch(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Reads the requests of all calls. Stands outside of all other interceptors."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: OrderedDict[asyncio.Future[None], float] = OrderedDict()
        """What gives a request up, and when it began, the oldest first."""
        self._has_some = asyncio.Event()

    @property
    def open_count(self) -> int:
        """Requests that are not complete."""
        return len(self._open)

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or handler.unary_unary is None:
            return handler
        behaviour = handler.unary_unary

        async def call(requests: AsyncIterator[Any], context: Any) -> Any:
            reading = await self._read(requests)
            if reading is None:
                return await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, _REASON)
            request = reading.result()
            if request is None:
                return await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no request")
            return await behaviour(request, context)

        # On the wire it is the same: a stream of one request.
        return grpc.stream_unary_rpc_method_handler(
            call, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer
        )

    async def _read(self, requests: AsyncIterator[Any]) -> asyncio.Future[Any] | None:
        """The request of a call once it is here, None for a call without one; no future if it was given up."""
        given_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        reading = asyncio.ensure_future(anext(requests, None))
        self._open[given_up] = self._clock.monotonic_s()
        self._has_some.set()
        try:
            await asyncio.wait({reading, given_up}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                return reading
            GIVEN_UP.inc()
            return None
        finally:
            reading.cancel()
            self._open.pop(given_up, None)

    async def run(self) -> None:
        """Give up what is open for too long, until cancelled. Costs nothing while nothing is open."""
        while True:
            await self._has_some.wait()
            await self._clock.sleep(look_s)
            self._look()
            if not self._open:
                self._has_some.clear()

    def _look(self) -> None:
        now_s = self._clock.monotonic_s()
        while self._open:
            given_up, began_s = next(iter(self._open.items()))
            if now_s - began_s < (open_time_min_s if len(self._open) > open_max else body_time_max_s):
                return
            del self._open[given_up]
            if not given_up.done():
                given_up.set_result(None)
