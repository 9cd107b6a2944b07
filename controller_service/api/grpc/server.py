"""Listens for the gRPC calls of a controller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc

from controller_service.api.grpc.access_guard import AccessControl, AccessGuard
from controller_service.api.grpc.audit_trail import AuditTrail
from controller_service.api.grpc.error_mapping import ErrorMapping
from pravega_common.errors import ConfigurationError
from pravega_common.services.audit_log import AuditLog
from pravega_common.services.base import Service
from pravega_common.services.tls import Certificate, ServerTls

message_bytes_max: Final = 16 * 1024 * 1024
"""Epochs of many segments and transaction sets of many members are larger than gRPC's 4 MiB."""
stop_grace_s: Final = 5.0
calls_concurrent_max: Final = 10_000

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", message_bytes_max),
    ("grpc.max_send_message_length", message_bytes_max),
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
    ) -> None:
        """``access``: None where everybody may do everything. ``audit``: None for no record of administrative calls."""
        super().__init__("grpc-server")
        self._listen = listen
        self._tls = tls
        self._add_services = add_services
        self._trail = () if audit is None else (AuditTrail(audit),)
        self._guards = () if access is None else (AccessGuard(access),)
        self._server: Any = None
        self.port = 0

    async def on_start(self) -> None:
        self._server = grpc.aio.server(
            interceptors=(ErrorMapping(), *self._trail, *self._guards),
            options=_OPTIONS,
            maximum_concurrent_rpcs=calls_concurrent_max,
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
