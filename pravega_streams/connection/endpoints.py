"""Defines the address of a segment store, and the contract of looking it up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a segment store."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Parse ``host:port``."""
        host, _, port = text.rpartition(":")
        return cls(host, int(port))


class EndpointResolver(Protocol):
    """Tells which store owns a segment's container (``getURI`` of the controller, or the assignment itself)."""

    async def resolve(self, segment: str) -> Endpoint:
        """Return the store of a segment; ``Unavailable`` while no store owns it."""
        ...

    def forget(self, segment: str) -> None:
        """Drop the last answer, which turned out wrong: the next call asks again."""
        ...
