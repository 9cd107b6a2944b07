"""Makes gRPC channels to controllers, and their calls."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from pravega_common.runtime.client_tls import certified_name
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.controller.failed_attempts import Unsent

message_bytes_max: Final = 64 * 1024 * 1024
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", message_bytes_max),
    ("grpc.max_send_message_length", message_bytes_max),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
)


class ControllerChannels:
    """The channels to the controllers of a cluster, each made with its first call. Safe to use from several threads."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = endpoints
        self._made: dict[int, grpc.Channel] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def of(self, index: int) -> grpc.Channel:
        """The channel to a controller; ``Unsent`` if the name cannot be read that it must be called by, and
        once all are closed."""
        made = self._made.get(index)
        if made is not None:
            return made
        fresh = _make_channel(self._endpoints[index])
        with self._lock:
            made = None if self._is_closed else self._made.setdefault(index, fresh)
        if made is not fresh:
            fresh.close()
        if made is None:
            raise Unsent("the connections are closed")
        return made

    def unreached(self, index: int) -> None:
        """A call found no connection. A controller whose name is not verified may be back with another certificate: the
        next call reads the name again, which a channel keeps for good."""
        tls = self._endpoints[index].tls
        if tls is None or tls.verify_host:
            return
        with self._lock:
            made = self._made.pop(index, None)
        if made is not None:
            made.close()

    def has(self, channel: grpc.Channel) -> bool:
        """Whether the channel is in use, and was not closed."""
        return channel in tuple(self._made.values())

    def close(self) -> None:
        """Close all, for good."""
        with self._lock:
            self._is_closed = True
            channels = list(self._made.values())
            self._made.clear()
        for channel in channels:
            channel.close()


def _make_channel(endpoint: Endpoint) -> grpc.Channel:
    """A channel that connects when it is first used."""
    if endpoint.tls is None:
        return grpc.insecure_channel(str(endpoint), options=_OPTIONS)
    options: list[tuple[str, int | str]] = list(_OPTIONS)
    if not endpoint.tls.verify_host:
        # gRPC always compares names, so it gets one out of the certificate. A channel without it would never connect.
        try:
            name = certified_name(endpoint.host, endpoint.port, endpoint.tls)
        except OSError as error:
            raise Unsent(error.strerror or str(error)) from error
        if not name:
            raise Unsent("its certificate has no name")
        options.append(("grpc.ssl_target_name_override", name))
    credentials = grpc.ssl_channel_credentials(endpoint.tls.root_certificates())
    return grpc.secure_channel(str(endpoint), credentials, options=options)


def unary_call(channel: grpc.Channel, service: ServiceDescriptor, method: str) -> Any:
    """Returns what calls a method with a request. The generated stubs make all methods of a service for each call."""
    found = service.methods_by_name[method]
    return channel.unary_unary(
        f"/{service.full_name}/{method}",
        request_serializer=GetMessageClass(found.input_type).SerializeToString,
        response_deserializer=GetMessageClass(found.output_type).FromString,
    )
