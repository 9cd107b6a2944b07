"""Waits for the answer of a store for as long as that owns the segment (``silence.py``), with asyncio."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from pravega_common.errors import PravegaError, UnknownOutcome
from pravega_streams.connection.endpoints import Endpoint, EndpointResolver
from pravega_streams.connection.silence import silences_s

T = TypeVar("T")


async def answer_of_owner(answer: asyncio.Future[T], resolver: EndpointResolver, segment: str, endpoint: Endpoint) -> T:
    """The answer; ``UnknownOutcome`` once another store owns the segment and none has come. Cancels it in the end."""
    try:
        for silence_s in silences_s():
            if (await asyncio.wait({answer}, timeout=silence_s))[0] or await _has_moved(resolver, segment, endpoint):
                break
        if not answer.done():
            raise UnknownOutcome(f"{segment}: {endpoint} does not answer, and another store owns the segment now")
        return answer.result()
    finally:
        answer.cancel()


async def _has_moved(resolver: EndpointResolver, segment: str, endpoint: Endpoint) -> bool:
    resolver.forget(segment)
    try:
        return await resolver.resolve(segment) != endpoint
    except PravegaError:
        return False
