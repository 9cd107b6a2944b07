"""Tells that bytes came to one of many segments, by reads that wait at their ends."""

from __future__ import annotations

import select
from collections.abc import Iterable, Mapping
from typing import Final

from pravega_common.errors import PravegaError
from pravega_common.wire import commands as c
from pravega_streams.connection.blocking import WireSocket
from pravega_streams.connection.endpoints import BlockingResolver, Endpoint
from pravega_streams.connection.requests import with_token

segments_watched_max: Final = 256
"""Reads that wait for one watch: a store takes 4,096 on a connection, and all are sent again once bytes came."""
hello_time_max_s: Final = 2.0
"""How long a store may take to greet; one that is slower is not watched."""


class TailWatch:
    """Watches the ends of segments over connections of its own. For one thread.

    It tells once: then its connections are closed, and with them its reads end in the stores. A connection whose peer
    is gone unseen tells nothing, so its user must look for himself from time to time.
    """

    def __init__(self, resolver: BlockingResolver) -> None:
        self._resolver = resolver
        self._offsets: dict[str, int] = {}
        self._connections: list[WireSocket] = []

    def begin(self, offsets: Mapping[str, int]) -> bool:
        """Watch these segments, by qualified name, for bytes at an offset each, and no others any more.

        False if it cannot: there are too many, or a store does not answer. What is watched already goes on.
        """
        if self._connections and offsets == self._offsets and all(one.is_open for one in self._connections):
            return True
        self.close()
        if not 0 < len(offsets) <= segments_watched_max:
            return False
        try:
            owned: dict[Endpoint, list[str]] = {}
            for segment in offsets:
                owned.setdefault(self._resolver.resolve(segment), []).append(segment)
            for endpoint, segments in owned.items():
                self._ask(endpoint, segments, offsets)
        except PravegaError:
            self.close()
            return False
        self._offsets = dict(offsets)
        return True

    def _ask(self, endpoint: Endpoint, segments: Iterable[str], offsets: Mapping[str, int]) -> None:
        """Send the reads to a store, over a connection on which nothing comes any more but the answers to them."""
        connection = WireSocket(endpoint, reply_time_s=hello_time_max_s)
        self._connections.append(connection)
        connection.peer_version()
        connection.send(*(self._read(connection, segment, offsets[segment]) for segment in segments))

    def _read(self, connection: WireSocket, segment: str, offset: int) -> c.Command:
        make = with_token(lambda rid: c.ReadSegment(segment, offset, 1, "", rid), self._resolver.token(segment))
        return make(connection.next_request_id())

    def wait(self, wait_s: float) -> bool:
        """Wait for as long: True as soon as a store says anything about a segment, or its connection ends."""
        poll = select.poll()
        for connection in self._connections:
            poll.register(connection.fileno(), select.POLLIN)
        is_told = bool(poll.poll(wait_s * 1_000))
        if is_told:
            self.close()
        return is_told

    def close(self) -> None:
        """Watch nothing any more."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._offsets = {}
