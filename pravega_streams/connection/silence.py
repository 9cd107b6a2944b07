"""Notices that a silent store does not own a segment any more.

A frozen store, or one behind a network that drops packets, breaks no connection. A store that holds appends back is
silent too, for good reasons, and must be waited for. The owner tells them apart: others take the containers of a store
that does not renew its lease.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from pravega_common.errors import PravegaError
from pravega_streams.connection.endpoints import BlockingResolver, Endpoint

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
