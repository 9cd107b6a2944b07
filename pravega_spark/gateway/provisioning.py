"""Creates the scopes and streams that options name, before data moves.

A process asks for each of them once, and again where a writer does not find it.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from typing import Final, TypeVar

from pravega_common.errors import ConfigurationError, NotFound
from pravega_spark.gateway.contract import StreamGateway
from pravega_spark.gateway.worker_process import worker_gateway
from pravega_spark.options.stream_options import StreamOptions
from pravega_streams.controller.address import Controller

Provision = Callable[[str, str, bool], None]
"""Creates a stream of a scope if it is missing; true where the store has just not found it, whatever is known here."""
_T = TypeVar("_T")

provisioned_max: Final = 10_000
"""Streams that a process remembers to be there; it asks for all of them again when there are more."""
_provisioned: set[tuple[int, Controller, str, str]] = set()


def provisioned_gateway(options: StreamOptions) -> StreamGateway:
    """The gateway of these options, with scope and streams in place.

    Raises ``ConfigurationError`` when one is missing and must not be created. The store is asked once per process and
    stream, since a sink is planned for every micro-batch.
    """
    gateway = worker_gateway(options.controller)
    for scope, stream in options.streams:
        provision_stream(gateway, options, scope, stream)
    if not options.streams:
        _once(options, options.scope, "", lambda: _provision_scope(gateway, options.scope, options.allow_create_scope))
    return gateway


def provision_stream(
    gateway: StreamGateway, options: StreamOptions, scope: str, stream: str, *, is_lost: bool = False
) -> None:
    """Create one stream if it is missing; the options need not name it. ``is_lost``: it was there before."""
    if is_lost:
        _provisioned.discard((os.getpid(), options.controller, scope, stream))
    _once(options, scope, stream, lambda: _provision(gateway, options, scope, stream))


def begun(stream: tuple[str, str], provision: Provision | None, begin: Callable[[], _T]) -> _T:
    """Provision a stream, and begin to write to it; both once more if ``begin`` does not find it.

    A worker of Spark may have known a stream of the name before it was deleted.
    """
    if provision is None:
        return begin()
    provision(*stream, False)
    try:
        return begin()
    except NotFound:
        provision(*stream, True)
        return begin()


def _once(options: StreamOptions, scope: str, stream: str, provision: Callable[[], None]) -> None:
    key = (os.getpid(), options.controller, scope, stream)
    if key not in _provisioned:
        provision()
        if len(_provisioned) >= provisioned_max:
            _provisioned.clear()
        _provisioned.add(key)


def _provision(gateway: StreamGateway, options: StreamOptions, scope: str, stream: str) -> None:
    if gateway.stream_exists(scope, stream):
        return
    # A scope for a stream that must not be created would stay, empty: its name may be mistyped.
    _provision_scope(gateway, scope, options.allow_create_scope and options.allow_create_stream)
    if not options.allow_create_stream:
        raise ConfigurationError(
            f"stream does not exist: '{scope}/{stream}'{_nearest(gateway, scope, stream)}; create it, or set "
            "allow_create_stream=true"
        )
    gateway.create_stream(scope, stream, options.stream_configuration)


def _provision_scope(gateway: StreamGateway, scope: str, may_create: bool) -> None:
    if not gateway.scope_exists(scope):
        if not may_create:
            raise ConfigurationError(
                f"scope does not exist: '{scope}'; create it, or set allow_create_scope=true and "
                "allow_create_stream=true"
            )
        gateway.create_scope(scope)


def _nearest(gateway: StreamGateway, scope: str, stream: str) -> str:
    """The stream of the scope that may have been meant, as the end of a sentence."""
    found = difflib.get_close_matches(stream, gateway.list_streams(scope), n=1, cutoff=0.6)
    return f", did you mean '{scope}/{found[0]}'?" if found else ""


def forget_provisioned() -> None:
    """Ask the store again: for tests that delete streams."""
    _provisioned.clear()
