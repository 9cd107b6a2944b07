"""Notices that a silent store does not own a segment any more.

A frozen store, or one behind a network that drops packets, breaks no connection. A store that holds appends back is
silent too, for good reasons, and must be waited for. The owner tells them apart: others take the containers of a store
that does not renew its lease.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Final, TypeVar

from pravega_common.errors import PravegaError, UnknownOutcome
from pravega_streams.connection.endpoints import BlockingResolver, Endpoint, EndpointResolver

T = TypeVar("T")

silence_min_s: Final = 2.0
"""After so long without an answer a client asks for the owner of the segment."""
silence_max_s: Final = 10.0
"""The pauses between two of these questions double up to this: many clients may wait for one store."""


def silences_s() -> Iterator[float]:
    """The pauses before the questions, without an end."""
    return (min(silence_min_s * 2.0**number, silence_max_s) for number in itertools.count())


def has_moved(resolver: BlockingResolver, segment: str, endpoint: Endpoint) -> bool:
    """Whether another store owns the segment, asked again now. False while nobody knows."""
    resolver.forget(segment)
    try:
        return resolver.resolve(segment) != endpoint
    except PravegaError:
        return False


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
