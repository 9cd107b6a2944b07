"""Tells a message that cannot be decoded from the failure of a handler: its caller gets INVALID_ARGUMENT."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError


@dataclass(frozen=True, slots=True)
class Undecodable:
    """Stands for a request that cannot be decoded; ``reason`` names its length and its type."""

    reason: str


def decoded(deserializer: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    """A deserializer that returns ``Undecodable``: of an error gRPC makes UNKNOWN, and a traceback in the log."""
    if deserializer is None:
        return None

    def decode(data: bytes) -> Any:
        try:
            return deserializer(data)
        except DecodeError as error:
            return Undecodable(f"the request of {len(data)} bytes cannot be decoded: {error}")

    return decode
