"""What happens once before data moves: the scope and the stream are there, or are created, or are missed by name."""

from __future__ import annotations

import os
from collections.abc import Callable

from pravega_common.errors import ConfigurationError
from pravega_spark.gateway.contract import StreamGateway
from pravega_spark.gateway.worker_process import worker_gateway
from pravega_spark.options.stream_options import StreamOptions

_prepared: set[tuple[int, str, str, str]] = set()


def provisioned_gateway(options: StreamOptions) -> StreamGateway:
    """The gateway of these options, with scope and streams in place.

    Raises ``ConfigurationError`` when one is missing and must not be created. Asked once per process and stream: a sink
    is planned anew for every micro-batch.
    """
    gateway = worker_gateway(options.controller)
    for scope, stream in options.streams:
        provision_stream(gateway, options, scope, stream)
    if not options.streams:
        _once(options, options.scope, "", lambda: _prepare_scope(gateway, options, options.scope))
    return gateway


def provision_stream(gateway: StreamGateway, options: StreamOptions, scope: str, stream: str) -> None:
    """The same for one stream that the options need not name."""
    _once(options, scope, stream, lambda: _prepare(gateway, options, scope, stream))


def _once(options: StreamOptions, scope: str, stream: str, prepare: Callable[[], None]) -> None:
    key = (os.getpid(), options.controller, scope, stream)
    if key not in _prepared:
        prepare()
        _prepared.add(key)


def _prepare(gateway: StreamGateway, options: StreamOptions, scope: str, stream: str) -> None:
    if gateway.stream_exists(scope, stream):
        return
    _prepare_scope(gateway, options, scope)
    if not options.allow_create_stream:
        raise ConfigurationError(
            f"stream does not exist: '{scope}/{stream}'; create it, or set allow_create_stream=true"
        )
    gateway.create_stream(scope, stream, options.stream_configuration)


def _prepare_scope(gateway: StreamGateway, options: StreamOptions, scope: str) -> None:
    if not gateway.scope_exists(scope):
        if not options.allow_create_scope:
            raise ConfigurationError(f"scope does not exist: '{scope}'; create it, or set allow_create_scope=true")
        gateway.create_scope(scope)


def forget_provisioned() -> None:
    """Ask again: for tests that delete streams."""
    _prepared.clear()
