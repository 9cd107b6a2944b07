"""Refuses requests that a web page of somebody else makes a browser send.

A browser on the operator's machine reaches a controller that listens on loopback only. The name in ``Host`` must be one
of this controller's, so that no foreign name can be pointed at its address, and ``Origin``, which a browser sends with
what a page does, must be the same place. Bodies are ``application/json``: a page cannot send that elsewhere without
asking first.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from controller_service.api.rest.errors import Handler, status_line_text

any_host: Final = "*"
"""The setting that lets every name pass."""


class WebDoors:
    """Middleware that lets a request pass, or answers 403 with the reason in the status line.

    ``names``: the host names of this controller; addresses pass as they are, since no page can make a foreign name of
    them.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = {name.lower().rstrip(".") for name in (*names, "localhost", socket.gethostname())}

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        reason = self._refusal(request.headers.getall("Host", []), request.headers.getall("Origin", []))
        if reason:
            return web.Response(status=403, reason=status_line_text(reason))
        return await handler(request)

    def _refusal(self, hosts: Collection[str], origins: Collection[str]) -> str:
        """The reason why a request does not pass; empty if it does. No browser leaves ``Host`` out."""
        if len(hosts) > 1 or len(origins) > 1:
            return "more than one Host or Origin"
        host = next(iter(hosts), "")
        if host and not self._is_own(host):
            return f"{host[:80]!r} is no name of this controller: use its address, or add it to controller.rest_hosts"
        for origin in origins:
            if _authority_of(origin) != host.lower() or not host:
                return f"the page of {origin[:80]!r} may not call this controller"
        return ""

    def _is_own(self, host: str) -> bool:
        if any_host in self._names:
            return True
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        return name in self._names or _is_address(name)


def _authority_of(origin: str) -> str:
    """The host and port of an origin, in lower case; empty for one that names none."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
