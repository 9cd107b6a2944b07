"""Listens for the gRPC calls of a controller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc

from controller_service.api.grpc.access_guard import AccessControl, AccessGuard
from controller_service.api.grpc.audit_trail import AuditTrail
from controller_service.api.grpc.body_watch import BodyWatch
from controller_service.api.grpc.call_limits import CallCounts, CallLimits
from controller_service.api.grpc.connection_watch import ConnectionWatch, connections_max_default
from controller_service.api.grpc.error_mapping import ErrorMapping
from controller_service.api.refused_calls import RefusedCalls
from pravega_common.errors import ConfigurationError
from pravega_common.runtime.clock import SystemClock
from pravega_common.services.audit_log import AuditLog
from pravega_common.services.base import Service
from pravega_common.services.tls import Certificate, ServerTls

answer_bytes_max: Final = 16 * 1024 * 1024
"""Epochs of many segments and transaction sets of many members are larger than gRPC's 4 MiB."""
request_bytes_max: Final = 4 * 1024 * 1024
"""The largest request, a set of 5,000 transactions with the longest names, takes 3 MiB."""
stop_grace_s: Final = 5.0
streams_per_connection_max: Final = 2_048
"""Calls in progress on one connection. gRPC refuses more without a reason, so this lies above the calls of one host,
which are refused with one."""
metadata_bytes_soft_max: Final = 12 * 1024
"""Bytes of a call's metadata above which some are refused, and the more the closer they come to the limit."""
metadata_bytes_max: Final = 16 * 1024
"""A bearer token takes up to 8 KiB of them, and each entry 32 bytes."""
calls_begun_max: Final = 10_000
"""Calls of which not even the message is here, and those in progress."""
handshake_time_max_s: Final = 10.0
"""Time from the connection to the end of TLS's and of HTTP/2's own handshake."""

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", request_bytes_max),
    ("grpc.max_send_message_length", answer_bytes_max),
    ("grpc.max_concurrent_streams", streams_per_connection_max),
    ("grpc.max_metadata_size", metadata_bytes_soft_max),
    ("grpc.absolute_max_metadata_size", metadata_bytes_max),
    # Without this a second process on the same port would take half the connections.
    ("grpc.so_reuseport", 0),
    # Java clients ping an idle connection every few minutes, and gRPC's default answer is to hang up.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)


class GrpcServer(Service):
    """``add_services`` registers the servicers on the server; ``port`` is the bound one after the start."""

    def __init__(
        self,
        listen: str,
        add_services: Sequence[Callable[[Any], None]],
        tls: ServerTls | None = None,
        access: AccessControl | None = None,
        audit: AuditLog | None = None,
        counts: CallCounts | None = None,
        refused: RefusedCalls | None = None,
        *,
        connections_max: int = connections_max_default,
        watch: ConnectionWatch | None = None,
    ) -> None:
        """``access``: None where everybody may do everything. ``audit``: None for no record of administrative calls.
        ``refused``: whose refusals are held. ``watch``: of the connections of one host."""
        super().__init__("grpc-server")
        self._listen = listen
        self._tls = tls
        self._add_services = add_services
        self._trail = () if audit is None else (AuditTrail(audit, asks_names=access is not None),)
        self._guards = () if access is None else (AccessGuard(access),)
        self.counts = counts or CallCounts.of()
        self.refused = refused or RefusedCalls(SystemClock())
        self._connections_max = connections_max
        self._watch = watch or ConnectionWatch(SystemClock())
        self.bodies = BodyWatch(SystemClock())
        self._server: Any = None
        self.port = 0

    async def on_start(self) -> None:
        self._server = grpc.aio.server(
            interceptors=(
                self.bodies,
                ErrorMapping(self.refused),
                CallLimits(self.counts),
                *self._trail,
                *self._guards,
            ),
            options=(*_OPTIONS, *self._connection_options()),
            maximum_concurrent_rpcs=calls_begun_max,
        )
        for add in self._add_services:
            add(self._server)
        try:
            self.port = self._add_port()
        except RuntimeError as error:
            raise ConfigurationError(f"listen = {self._listen!r}: cannot listen there ({error})") from error
        if self.port == 0:
            raise ConfigurationError(f"listen = {self._listen!r}: cannot listen there")
        await self._server.start()
        self.spawn(self._watch.run(self.port), "connections")
        self.spawn(self.bodies.run(), "half-sent-requests")

    def _connection_options(self) -> Sequence[tuple[str, int]]:
        handshake_ms = int(handshake_time_max_s * 1_000)
        return (
            ("grpc.max_allowed_incoming_connections", self._connections_max),
            ("grpc.server_handshake_timeout_ms", handshake_ms),
            ("grpc.http2.settings_timeout", handshake_ms),
        )

    def _add_port(self) -> int:
        if self._tls is None:
            return int(self._server.add_insecure_port(self._listen))
        return int(self._server.add_secure_port(self._listen, _credentials(self._tls)))

    async def on_stop(self) -> None:
        if self._server is not None:
            await self._server.stop(stop_grace_s)


def _credentials(tls: ServerTls) -> grpc.ServerCredentials:
    """Credentials that have the newest certificate at every handshake."""
    served = tls.certificate

    def newer() -> Any:
        """Returns the certificate to serve from now on; ``None`` for no change. Called by gRPC at every handshake."""
        nonlocal served
        if tls.certificate is served:
            return None
        served = tls.certificate
        return _configuration(served)

    return grpc.dynamic_ssl_server_credentials(_configuration(served), newer)


def _configuration(certificate: Certificate) -> Any:
    return grpc.ssl_server_certificate_configuration([(certificate.key_pem, certificate.chain_pem)])
