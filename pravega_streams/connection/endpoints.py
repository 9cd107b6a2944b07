"""Where segments are served."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Endpoint:
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """``host:port``."""
        host, _, port = text.rpartition(":")
        return cls(host, int(port))


class EndpointResolver(Protocol):
    """Tells which store owns a segment's container (``getURI`` of the controller, or the assignment itself)."""

    async def resolve(self, segment: str) -> Endpoint:
        """``Unavailable`` while no store owns it."""
        ...

    def forget(self, segment: str) -> None:
        """The last answer turned out wrong; ask anew next time."""
        ...
