"""Makes gRPC channels to controllers, and their calls."""

from __future__ import annotations

import contextlib
from typing import Any, Final

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from pravega_common.runtime.client_tls import certified_name
from pravega_streams.connection.endpoints import Endpoint

message_bytes_max: Final = 64 * 1024 * 1024
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", message_bytes_max),
    ("grpc.max_send_message_length", message_bytes_max),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
)


def make_channel(endpoint: Endpoint) -> grpc.Channel:
    """A channel that connects when it is first used."""
    if endpoint.tls is None:
        return grpc.insecure_channel(str(endpoint), options=_OPTIONS)
    options: list[tuple[str, int | str]] = list(_OPTIONS)
    if not endpoint.tls.verify_host:
        # gRPC always compares names, so it gets one out of the certificate. Where none can be read now, the connection
        # fails as well.
        with contextlib.suppress(OSError):
            name = certified_name(endpoint.host, endpoint.port, endpoint.tls)
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
