"""Finds the segment stores of a cluster for ``doctor``, and checks each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from pravega_common.errors import AccessDenied, UnsupportedOperation
from pravega_common.names import segment_name
from pravega_common.wire import commands as wire
from pravega_spark.commands.findings import Finding, RunningCheck, median_ms
from pravega_streams.client import StreamClient
from pravega_streams.connection.blocking import WireSocket
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.controller.address import ControllerAddress

store_search_segments: Final = 64
"""Segment names whose owners are asked for, to find the stores of a plain Pravega: nearly every one lies in a container
of its own."""


class StoreChecks:
    """The search for the stores, then a check of each."""

    def __init__(self, address: ControllerAddress) -> None:
        self._found: list[Endpoint] = []
        self._address = address
        remedy = "look into the controller's log: no store owns the containers"
        self._search = RunningCheck.of("segment stores", remedy, self._look)

    def findings(self) -> list[Finding]:
        first = self._search.finding()
        text = "it hangs, or the address that the controller names is not reachable from here; look at its /health"
        each = [RunningCheck.of(f"segment store {item}", text, _ping(item)) for item in list(self._found)]
        return [first, *(one.finding() for one in each)]

    def _look(self) -> str:
        with StreamClient(self._address) as client:
            self._found.extend(find_stores(client))
        if not self._found:
            raise ValueError("no segment store has a lease")
        return f"{len(self._found)} found: {', '.join(map(str, self._found))}"


def find_stores(client: StreamClient) -> list[Endpoint]:
    """Lists the stores that have a lease, or of a plain Pravega the owners of some segments, which need not exist."""
    try:
        described = client.health.describe()
    except (UnsupportedOperation, AccessDenied):
        owners = {client.controller.endpoint("doctor", "probe", number) for number in range(store_search_segments)}
        return sorted(owners, key=str)
    tls = client.address.tls
    return [replace(Endpoint.parse(store.address), tls=tls) for store in described.stores]


def _ping(endpoint: Endpoint) -> Callable[[], str]:
    def look() -> str:
        connection = WireSocket(endpoint)
        try:
            # Any answer is good, even that this store does not own the segment.
            name = segment_name("doctor", "probe", 0)
            took_ms = median_ms(lambda: connection.call(lambda rid: wire.GetStreamSegmentInfo(rid, name)))
        finally:
            connection.close()
        return f"{took_ms:.1f} ms"

    return look
