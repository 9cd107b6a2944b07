"""What happens once before data moves: the scope and the stream are there, or are created, or are missed by name."""

from __future__ import annotations

import os

from pravega_common.errors import ConfigurationError
from pravega_spark.gateway import StreamGateway, gateway_for
from pravega_spark.options import Options

_prepared: set[tuple[int, str, str, str]] = set()


def prepared_gateway(options: Options) -> StreamGateway:
    """The gateway of these options, with scope and streams in place.

    Raises ``ConfigurationError`` when one is missing and must not be created. Asked once per process and stream: a sink
    is planned anew for every micro-batch.
    """
    gateway = gateway_for(options["controller"])
    for stream in options.streams:
        key = (os.getpid(), options["controller"], options.scope, stream)
        if key not in _prepared:
            _prepare(gateway, options, stream)
            _prepared.add(key)
    return gateway


def _prepare(gateway: StreamGateway, options: Options, stream: str) -> None:
    scope = options.scope
    if gateway.stream_exists(scope, stream):
        return
    if not gateway.scope_exists(scope):
        if not options["allow_create_scope"]:
            raise ConfigurationError(f"scope does not exist: '{scope}'; create it, or set allow_create_scope=true")
        gateway.create_scope(scope)
    if not options["allow_create_stream"]:
        raise ConfigurationError(
            f"stream does not exist: '{scope}/{stream}'; create it, or set allow_create_stream=true"
        )
    gateway.create_stream(scope, stream, options.stream_configuration())


def forget_prepared() -> None:
    """Ask again: for tests that delete streams."""
    _prepared.clear()
