"""Accepts connections for the wire server, and owns everything that runs for them."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

from pravega_common.errors import ConfigurationError
from pravega_common.invariants import check
from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.runtime.local_socket import listening_name
from pravega_common.services.base import Service, ServiceState
from pravega_common.services.security.delegation_tokens import DelegationTokens
from pravega_common.services.tls_door import TlsDoor
from pravega_common.wire import codec
from pravega_common.wire.commands import THROTTLED, Command, ErrorMessage
from segment_service.contracts.segment_store import BackPressure, SegmentStore
from segment_service.contracts.table_store import TableStore
from segment_service.host.admission import Admission, is_of_controller
from segment_service.host.budgets import ServerBudgets
from segment_service.host.connection import Connection, close_linger_s
from segment_service.host.in_flight import InFlightBudget
from segment_service.host.refusals import refusals_per_peer_per_s_default
from segment_service.host.request_processor import RequestProcessor
from segment_service.host.request_times import RequestTimes
from segment_service.host.server_parts import ServerParts
from segment_service.host.token_check import TokenCheck
from segment_service.quotas.scope_buckets import ByteQuotas

connections_max_default: Final = 16_384
accept_backlog: Final = 1_024
recent_closes_max: Final = 64
_ACCEPTING: Final = (ServiceState.STARTING, ServiceState.RUNNING)


class WireServer(Service):
    """Serves the wire protocol on one address for one store, with a Unix socket beside a plain loopback port; hosts no
    container itself.

    ``port`` 0 takes a free one: read ``port`` after ``start``. ``recent_closes`` holds the last (peer, reason) pairs.
    """

    def __init__(
        self,
        store: SegmentStore,
        tables: TableStore,
        back_pressure: BackPressure,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        random_bytes: Callable[[int], bytes] = os.urandom,
        connections_max: int = connections_max_default,
        connections_per_peer_max: int = 0,
        refusals_per_peer_per_s: int = refusals_per_peer_per_s_default,
        budget: InFlightBudget | None = None,
        tls: ssl.SSLContext | None = None,
        tokens: DelegationTokens | None = None,
        authenticates: bool = False,
        local_socket: bool = True,
        quotas: ByteQuotas | None = None,
    ) -> None:
        super().__init__("wire-server")
        self.host = host
        self.port = port
        self.recent_closes: deque[tuple[str, str]] = deque(maxlen=recent_closes_max)
        clock = clock or SystemClock()
        self.quotas = quotas or ByteQuotas(clock)
        self._tokens = TokenCheck(tokens, authenticates=authenticates)
        self.times = RequestTimes()
        self.budgets = ServerBudgets.of(clock, budget, refusals_per_peer_per_s)
        on_merged = self.budgets.merged_writers.merged
        requests = RequestProcessor(store, tables, clock, random_bytes, self._tokens, self.times, on_merged)
        self._parts = ServerParts(
            store, requests, back_pressure, self.budgets, self.quotas, self._tokens, self.times, clock, self.spawn
        )
        self.admission = Admission(connections_max, per_peer_max=connections_per_peer_max)
        self._tls = tls
        self._local_socket = local_socket
        self._servers: list[asyncio.Server] = []
        self.door: TlsDoor | None = None
        """Accepts the connections of a store that speaks TLS."""
        self._connections: set[Connection] = set()
        self._cleanups: set[asyncio.Task[Any]] = set()
        self._none_left = asyncio.Event()
        self._none_left.set()

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def on_start(self) -> None:
        try:
            await self._listen()
        except OSError as error:
            raise ConfigurationError(
                f"store.listen = '{self.host}:{self.port}': cannot listen there ({error})"
            ) from error
        if self.door is not None:
            self.own(self.door)
        else:
            await self._listen_locally()
        self.spawn(self.budgets.hello.run(), "hello-deadlines")
        self.spawn(self.budgets.frames.run(), "frame-deadlines")
        self.spawn(self.budgets.unsent.run(), "unsent-replies")
        self.spawn(self.budgets.unsent.watch(), "untaken-replies")
        self.log.info("serving the wire protocol", host=self.host, port=self.port)

    async def _listen(self) -> None:
        if self._tls is not None:
            self.door = TlsDoor(self.host, self.port, self._tls, self._accept, backlog=accept_backlog)
            await self.door.start()
            self.port = self.door.port
            return
        server = await asyncio.get_running_loop().create_server(
            self._accept, self.host, self.port, backlog=accept_backlog
        )
        check(len(server.sockets) > 0, "a server without a socket", host=self.host, port=self.port)
        self.port = int(server.sockets[0].getsockname()[1])
        self._servers.append(server)

    async def _listen_locally(self) -> None:
        """Serve clients of this machine at a Unix socket, too; they do without where its name is taken."""
        name = listening_name(self.host, self.port) if self._local_socket else ""
        if not name:
            return
        try:
            server = await asyncio.get_running_loop().create_unix_server(self._accept, name, backlog=accept_backlog)
        except OSError as error:
            self.log.warning("no Unix socket for clients of this machine: they use the port", error=str(error))
        else:
            self._servers.append(server)

    async def on_stop(self) -> None:
        if self.door is not None:
            await self.door.stop()
        for server in self._servers:
            server.close()
        for connection in tuple(self._connections):
            connection.stop("the server is stopping")
        try:
            await asyncio.wait_for(self._none_left.wait(), close_linger_s)
        except TimeoutError:
            for connection in tuple(self._connections):
                connection.abort()
            await self._none_left.wait()
        if self._cleanups:
            await asyncio.wait(self._cleanups, timeout=close_linger_s)

    def _accept(self) -> asyncio.BaseProtocol:
        if self.state not in _ACCEPTING:
            return _Refusal("the store is stopping")
        return Connection(self._parts, self._connection_made, self._connection_lost)

    def _connection_made(self, connection: Connection) -> None:
        # Not at the accept: a peer whose handshake fails is never a connection, nor lost as one.
        self._connections.add(connection)
        self._none_left.clear()
        if self.admission.add(connection):
            return
        if self.admission.is_on_probation(connection):
            connection.on_probation = partial(self._decide, connection)

    def _decide(self, connection: Connection, command: Command) -> str:
        """The reason why a connection above the limit may not stay; empty if it is a controller's."""
        if self._tokens.is_of_internal(command) if self._tokens.is_on else is_of_controller(command):
            self.admission.prove(connection)
            return ""
        return self.admission.refuse(connection)

    def _connection_lost(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self.admission.remove(connection)
        if connection.cleanup is not None:
            self._cleanups.add(connection.cleanup)
            connection.cleanup.add_done_callback(self._cleanups.discard)
        reason = connection.close_reason or "closed"
        self.recent_closes.append((connection.peer_name, reason))
        self.log.debug("connection closed", peer=connection.peer_name, reason=reason)
        if not self._connections:
            self._none_left.set()


class _Refusal(asyncio.Protocol):
    """Tells a peer why it is not served, and closes."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)
        stream.write(codec.encode(ErrorMessage(0, "", self._reason, THROTTLED)))
        stream.close()
