"""Puts a behaviour around that of a gRPC handler, for interceptors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

Behaviour = Callable[[Any, Any], Awaitable[Any]]
"""What a unary call does with its request and its context."""


def with_behaviour(handler: Any, behaviour: Behaviour) -> Any:
    """The handler of a unary call with another behaviour; it decodes and encodes as before."""
    return grpc.unary_unary_rpc_method_handler(
        behaviour,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )
