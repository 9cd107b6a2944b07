"""Parses the address of a cluster: its controllers, and whether it speaks TLS."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pravega_common.errors import ConfigurationError
from pravega_common.runtime.client_tls import ClientTls
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.credentials import Credentials

controller_port_default: Final = 9090
CA_FILE_VARIABLE: Final = "PRAVEGA_CA_FILE"
"""The environment variable with the file of a cluster's authority, for clients that are given none."""
PLAIN_SCHEMES: Final = ("tcp", "pravega")
TLS_SCHEMES: Final = ("tls", "ssl", "pravegas")
"""As Pravega's clients have them: TLS to the controllers, and to the stores that these name."""


@dataclass(frozen=True, slots=True)
class ControllerAddress:
    """The controllers of a cluster. Pickled to Spark's executors, with the text of the authority's certificate.

    ``tls``: how the servers of the cluster are verified; ``None`` for a cluster without TLS. ``credentials``: those of
    clients that are given no others.
    """

    uri: str
    endpoints: tuple[Endpoint, ...]
    tls: ClientTls | None = None
    credentials: Credentials | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.uri

    @classmethod
    def parse(cls, uri: str, *, ca_file: str | Path = "", verify_host: bool = True) -> ControllerAddress:
        """Parse ``tcp://host:port[,host:port…]`` or ``tls://…``; without a scheme it is ``tcp``. An IPv6 address is
        a host in brackets.

        ``ca_file``: certificates of the authority that signed the cluster's, in PEM; by default those of
        ``PRAVEGA_CA_FILE``, else the system's. ``ConfigurationError`` for an address that cannot be used.
        """
        if not isinstance(uri, str):
            raise ConfigurationError(f"controller {uri!r} is no text; write for example tcp://localhost:9090")
        scheme, rest = uri.split("://", 1) if "://" in uri else ("tcp", uri)
        if scheme not in PLAIN_SCHEMES + TLS_SCHEMES:
            raise ConfigurationError(
                f"controller '{uri}': scheme '{scheme}' is not served; use tcp://host:port, or tls://host:port"
            )
        tls = None
        if scheme in TLS_SCHEMES:
            tls = ClientTls.from_file(ca_file or os.environ.get(CA_FILE_VARIABLE, ""), verify_host=verify_host)
        elif str(ca_file):
            raise ConfigurationError(f"controller '{uri}' is no TLS address, so ca_file has no use: write tls://{rest}")
        return cls(uri, tuple(_endpoint(uri, part, tls) for part in rest.rstrip("/").split(",")), tls)

    @classmethod
    def of(
        cls, controller: str | ControllerAddress, *, ca_file: str | Path = "", verify_host: bool = True
    ) -> ControllerAddress:
        """Parse a text; an address that is parsed already stays as it is."""
        if isinstance(controller, ControllerAddress):
            return controller
        return cls.parse(controller, ca_file=ca_file, verify_host=verify_host)


Controller = str | ControllerAddress
"""The address of a cluster as callers give it: a text, or parsed with the trust that goes with it."""


def speaks_tls(uri: str) -> bool:
    """Whether the scheme of an address asks for TLS."""
    return uri.partition("://")[0] in TLS_SCHEMES


def _endpoint(uri: str, part: str, tls: ClientTls | None) -> Endpoint:
    part = part.strip()
    if "@" in uri:
        # Not quoted as a whole: what is before the @ may hold a password, and that a comma.
        raise ConfigurationError(
            f"controller '{uri.rpartition('@')[2]}': a user in an address is not served; leave out what is before "
            "the @, and give credentials, or PRAVEGA_USER with PRAVEGA_PASSWORD_FILE"
        )
    try:
        parsed = urlsplit(f"//{part}")
        host, port = parsed.hostname, controller_port_default if parsed.port is None else parsed.port
    except ValueError:
        parsed, host, port = None, None, 0
    # What is behind a slash would be dropped: tcp://a:1,tcp://b:2 was a host called tcp.
    if parsed is None or parsed.netloc != part or not host or not port:
        raise ConfigurationError(
            f"controller '{uri}': '{part}' is not host:port; write for example tcp://localhost:9090, "
            "tcp://[::1]:9090, or tcp://a:9090,b:9090 for two controllers"
        )
    return Endpoint(host, port, tls)
