"""Decides which connections a server takes, and keeps some for the controllers."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Final, Protocol

from pravega_common import names
from pravega_common.wire import codec
from pravega_common.wire import commands as wire
from pravega_common.wire.commands import Command

controller_connections_reserved: Final = 64
"""Connections above the limit that are kept for controllers."""

_CONTROLLER_COMMANDS: Final = (
    wire.CreateSegment,
    wire.SealSegment,
    wire.DeleteSegment,
    wire.TruncateSegment,
    wire.UpdateSegmentPolicy,
    wire.MergeSegments,
    wire.MergeSegmentsBatch,
    wire.CreateTableSegment,
    wire.DeleteTableSegment,
)
_CONTROLLER_TYPES: Final = {made.type_code for made in _CONTROLLER_COMMANDS}
_SYSTEM: Final = names.SYSTEM_SCOPE + "/"


def is_of_controller(command: Command) -> bool:
    """Whether only controllers send such a command: it makes or ends segments, or is about the controllers' tables."""
    if isinstance(command, wire.RequestBatch):
        types = {codec.frame_type(request) for request in command.requests}
        return bool(types) and types <= _CONTROLLER_TYPES
    return isinstance(command, _CONTROLLER_COMMANDS) or str(getattr(command, "segment", "")).startswith(_SYSTEM)


class Admitted(Protocol):
    """A connection as the admission sees it."""

    @property
    def peer_host(self) -> str: ...

    def refuse(self, reason: str) -> None:
        """Tell the peer why it is not served, and close."""
        ...


class Admission:
    """Counts connections. Above the limits, of all and of one host, those that may be controllers are on probation.

    The first request of a connection on probation says what it is (Hello does not). While it says nothing it may have
    to make room: once the reserved ones are used up, the host with the most on probation loses its oldest. So a host
    that only connects, however often, keeps no controller of another host out.
    """

    def __init__(
        self, connections_max: int, reserved: int = controller_connections_reserved, per_peer_max: int = 0
    ) -> None:
        """``per_peer_max``: connections that the clients of one host may have; 0 for as many as all."""
        self.connections_max = connections_max
        self._per_peer_max = per_peer_max or connections_max
        self._by_host: Counter[str] = Counter()
        """Connections of clients."""
        self.refused_total = 0
        self._reserved = reserved
        self._clients: set[Admitted] = set()
        self._controllers: set[Admitted] = set()
        self._on_probation: dict[str, OrderedDict[Admitted, None]] = {}
        """By host, the oldest first. There are never more than are reserved."""

    def refusal(self, host: str) -> str:
        """The reason why no more clients of a host are taken."""
        if self._by_host[host] >= self._per_peer_max and len(self._clients) < self.connections_max:
            return (
                f"the store serves {self._per_peer_max} connections of {host} already, its limit for one host "
                "(store.connections_per_peer_max): close some, or try again later"
            )
        return (
            f"the store serves {self.connections_max} connections already, its limit (store.connections_max): "
            "try again later, or at another store"
        )

    def add(self, connection: Admitted) -> bool:
        """Count a connection; whether it is taken without probation."""
        host = connection.peer_host
        if len(self._clients) < self.connections_max and self._by_host[host] < self._per_peer_max:
            self._clients.add(connection)
            self._by_host[host] += 1
            return True
        self._on_probation.setdefault(connection.peer_host, OrderedDict())[connection] = None
        if len(self._controllers) + sum(map(len, self._on_probation.values())) > self._reserved:
            most = max(self._on_probation.values(), key=len)
            oldest = next(iter(most))
            oldest.refuse(self.refuse(oldest))
        return False

    def is_on_probation(self, connection: Admitted) -> bool:
        return connection in self._on_probation.get(connection.peer_host, ())

    def prove(self, connection: Admitted) -> None:
        """End the probation of a connection that is a controller's."""
        self._forget(connection)
        self._controllers.add(connection)

    def refuse(self, connection: Admitted) -> str:
        """End the probation of a connection that is not a controller's; returns the reason to give it."""
        self._forget(connection)
        self.refused_total += 1
        return self.refusal(connection.peer_host)

    def remove(self, connection: Admitted) -> None:
        """Forget a connection that ended."""
        if connection in self._clients:
            self._clients.remove(connection)
            self._by_host[connection.peer_host] -= 1
            if not self._by_host[connection.peer_host]:
                del self._by_host[connection.peer_host]
        self._controllers.discard(connection)
        self._forget(connection)

    def _forget(self, connection: Admitted) -> None:
        of_host = self._on_probation.get(connection.peer_host)
        if of_host is not None:
            of_host.pop(connection, None)
            if not of_host:
                del self._on_probation[connection.peer_host]
