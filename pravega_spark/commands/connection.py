"""Connects a command to a cluster, and fails at once where nobody listens."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pravega_common.errors import ScopeNotFound, StreamNotFound, Unavailable
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_spark.commands.stream_names import parse_stream
from pravega_streams.client import StreamClient
from pravega_streams.controller.address import CA_FILE_VARIABLE, ControllerAddress

if TYPE_CHECKING:
    from pravega_spark.gateway.service import ServiceGateway

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
connect_time_max_s: Final = 3.0
"""How long a command looks for a controller before it says that none is there."""


@contextmanager
def connected(controller: str) -> Iterator[StreamClient]:
    """Opens the clients of a cluster; ``Unavailable`` at once if nobody listens at any of the addresses."""
    check_listens(controller)
    with StreamClient(cluster_address(controller)) as client:
        yield client


@contextmanager
def connected_gateway(controller: str) -> Iterator[ServiceGateway]:
    """Opens the connector's own way to a cluster, for commands that look into streams as a read does."""
    from pravega_spark.gateway.service import ServiceGateway  # Arrow takes longer to import than most commands take.

    gateway = ServiceGateway(cluster_address(controller))
    try:
        yield gateway
    finally:
        gateway.close()


def cluster_address(controller: str) -> ControllerAddress:
    """Parses an address. The authority of a standalone of this machine is found where it was made."""
    return ControllerAddress.parse(controller, ca_file=authority_of(controller))


def authority_of(controller: str) -> str:
    """The file of the authority of a standalone of this machine with TLS, for who is given none; else empty."""
    address = ControllerAddress.parse(controller)
    is_here = all(endpoint.host in LOOPBACK for endpoint in address.endpoints)
    if address.tls is None or os.environ.get(CA_FILE_VARIABLE) or not is_here:
        return ""
    from pravega_spark.standalone.options import authority_file, default_data_dir  # Has more than most commands need.

    made_here = authority_file(default_data_dir())
    return str(made_here) if made_here.exists() else ""


def check_listens(controller: str | ControllerAddress) -> None:
    """Raises ``Unavailable`` for a wrong address, which the clients would retry for half a minute."""
    failure: OSError | None = None
    for endpoint in ControllerAddress.of(controller).endpoints:
        try:
            socket.create_connection((endpoint.host, endpoint.port), timeout=connect_time_max_s).close()
            return
        except OSError as error:
            failure = error
    raise Unavailable(
        f"no controller answers at {controller} ({failure}); start one with: pravega-spark standalone, or name the "
        "right address with --controller or PRAVEGA_CONTROLLER"
    ) from failure


def existing_stream(client: StreamClient, text: str, *, for_writing: bool = False) -> tuple[str, str]:
    """Parses the name of a stream that must be there: ``StreamNotFound`` says where to look for the right name, or how
    to make the stream if it is to be written to.
    """
    scope, stream = parse_stream(text)
    if not client.controller.stream_exists(scope, stream):
        advice = (
            f"create it with: pravega-spark stream create {text}" if for_writing else "see pravega-spark stream list"
        )
        raise StreamNotFound(f"stream '{text}' does not exist; {advice}")
    return scope, stream


def created_with_scope(client: StreamClient, scope: str, stream: str, configuration: StreamConfiguration) -> bool:
    """Creates a stream, and its scope if that is missing; returns whether the stream is new.

    The stream first: who may make streams in a scope may make no scopes, nor ask for one that is there.
    """
    try:
        return client.controller.create_stream(scope, stream, configuration)
    except ScopeNotFound:
        client.controller.create_scope(scope)
        return client.controller.create_stream(scope, stream, configuration)
