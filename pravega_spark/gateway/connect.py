"""Opens the gateway to a controller, once per process."""

from __future__ import annotations

import os
from collections.abc import Callable

from pravega_spark.gateway.contract import StreamGateway
from pravega_spark.gateway.service import ServiceGateway
from pravega_streams.controller.address import Controller, ControllerAddress
from pravega_streams.credentials import Credentials, ShippedCredentials

_gateways: dict[tuple[int, Controller], StreamGateway] = {}
"""By process id too: connections do not survive a fork."""
_openers: dict[str, Callable[[Controller], StreamGateway]] = {}
"""By the scheme of an address; a cluster's addresses need no entry."""


def gateway_for(controller: Controller) -> StreamGateway:
    """The gateway to a controller; it connects at its first call.

    The credentials of the address are the newest, and are shown from now on wherever those of their origin are.
    ``ConfigurationError`` for an address that cannot be used.
    """
    if isinstance(controller, ControllerAddress):
        renew(controller.credentials)
    key = (os.getpid(), controller)
    gateway = _gateways.get(key)
    if gateway is None:
        gateway = _openers.get(str(controller).partition("://")[0], ServiceGateway)(controller)
        _gateways[key] = gateway
    return gateway


def renew(credentials: Credentials | None) -> None:
    """Have the gateways of this process show these, if another process sent them."""
    if isinstance(credentials, ShippedCredentials):
        credentials.renew()


def register_scheme(scheme: str, open_gateway: Callable[[Controller], StreamGateway]) -> None:
    """Open addresses of this scheme, in this process, with ``open_gateway``: for tests, which have a fake store.

    ``open_gateway`` is given the whole address.
    """
    _openers[scheme] = open_gateway
