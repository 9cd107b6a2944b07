"""Checks what a cluster lets a stranger do, for ``doctor``: one line each for TLS, authentication and the store's keys.

What is open is no failure, since a cluster of the profile ``dev`` is so on purpose; each such line has its remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from pravega_common.errors import AccessDenied, AuthenticationFailed, PravegaError
from pravega_common.wire import commands as wire
from pravega_spark.commands.connection import cluster_address
from pravega_spark.commands.findings import Finding, RunningCheck, not_permitted
from pravega_spark.commands.store_checks import find_stores
from pravega_streams.client import StreamClient
from pravega_streams.connection.blocking import WireSocket
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.controller.address import ControllerAddress

_INTERNAL_SEGMENT: Final = "_system/_tables/scopes"
_AUTHENTICATION: Final = "security: authentication"
_KEYS: Final = "security: keys of the cluster"
_DOCUMENT: Final = "docs/security.md"


class _NoCredentials:
    """Stands for a caller who proves nothing, whatever the environment has."""

    def header(self) -> str:
        return ""


def security(controller: str) -> list[Finding]:
    """The findings about a cluster whose controller answers at this address."""
    return start_security(cluster_address(controller))()


def start_security(address: ControllerAddress) -> Callable[[], list[Finding]]:
    """Starts the checks; the function that is returned waits for them."""
    checks = [
        RunningCheck(lambda _, look=look: look(address), Finding(name, None, "unknown: ", is_unknown=True))  # type: ignore[misc]
        for name, look in ((_AUTHENTICATION, _authentication), (_KEYS, _keys))
    ]
    return lambda: _together([_tls(address), *(one.finding() for one in checks)])


def _together(found: list[Finding]) -> list[Finding]:
    missing = _subjects(item for item in found if not item.is_ok and not item.is_unknown)
    unknown = _subjects(item for item in found if item.is_unknown)
    detail = f"dev: prod would ask for {missing}" if missing else "as prod asks, as far as a client sees"
    if unknown:
        detail += f"; not known: {unknown}"
    remedy = f'set security.profile = "prod" at every service, which names what is missing ({_DOCUMENT} 5)'
    if not missing:
        remedy = next((item.remedy for item in found if item.is_unknown), "")
    is_ok = None if missing or unknown else True
    return [*found, Finding("security: profile", is_ok, detail, remedy, is_unknown=bool(unknown) and not missing)]


def _subjects(findings: Iterable[Finding]) -> str:
    return ", ".join(item.name.removeprefix("security: ") for item in findings)


def _tls(address: ControllerAddress) -> Finding:
    if address.tls is not None:
        return Finding("security: TLS", True, "on")
    detail = "off: who is on the way reads and changes passwords and events"
    return Finding("security: TLS", None, detail, f"set [tls] at every service, and use tls:// ({_DOCUMENT} 1)")


def _authentication(address: ControllerAddress) -> Finding:
    name = _AUTHENTICATION
    try:
        with StreamClient(address, credentials=_NoCredentials()) as stranger:
            stranger.controller.delegation_token("doctor", "probe")
    except AuthenticationFailed:
        return Finding(name, True, "on: a caller without credentials is refused")
    except PravegaError as error:
        return Finding(name, None, f"unknown: {error}", "look into the controller's log", is_unknown=True)
    detail = "off: who reaches a port may read, write and delete every stream"
    return Finding(name, None, detail, f"set security.authentication at every service ({_DOCUMENT} 4)")


def _keys(address: ControllerAddress) -> Finding:
    name = _KEYS
    try:
        with StreamClient(address) as client:
            stores = find_stores(client)
        is_open = [str(store) for store in stores if not _refuses_strangers(store)]
    except AccessDenied as error:
        return not_permitted(name, error)
    except (PravegaError, OSError) as error:
        return Finding(name, None, f"unknown: {error}", "look into the store's log", is_unknown=True)
    if not is_open:
        return Finding(name, True, "on: the controllers' segments are for services of the cluster")
    detail = f"off at {', '.join(is_open)}: everybody may do what controllers do"
    return Finding(name, None, detail, f"set security.cluster_key_file at every service ({_DOCUMENT} 2)")


def _refuses_strangers(store: Endpoint) -> bool:
    """Whether a request about the controllers' catalogue, without a token, is refused."""
    connection = WireSocket(store)
    try:
        reply = connection.call(lambda rid: wire.GetStreamSegmentInfo(rid, _INTERNAL_SEGMENT))
    finally:
        connection.close()
    return isinstance(reply, wire.AuthTokenCheckFailed)
