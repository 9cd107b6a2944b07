"""Defines the address of a segment store, and the contracts of looking it up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pravega_common.runtime.client_tls import ClientTls


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a segment store. ``host``: an IPv6 address has no brackets here, and has them in the text.
    ``tls``: how its certificate is verified; ``None`` for a plain connection."""

    host: str
    port: int
    tls: ClientTls | None = None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Parse ``host:port``; an IPv6 address may be without its brackets."""
        host, _, port = text.rpartition(":")
        return cls(host.strip("[]"), int(port))


class BlockingResolver(Protocol):
    """A lookup of the store that serves a segment, for code without an event loop; asks again after ``forget``."""

    def resolve(self, segment: str) -> Endpoint: ...

    def token(self, segment: str) -> str:
        """Return what the store is shown with requests about a segment; empty where it asks for nothing."""
        ...

    def forget(self, segment: str) -> None: ...


class EndpointResolver(Protocol):
    """Tells which store owns a segment's container (``getURI`` of the controller, or the assignment itself)."""

    async def resolve(self, segment: str) -> Endpoint:
        """Return the store of a segment; ``Unavailable`` while no store owns it."""
        ...

    async def token(self, segment: str) -> str:
        """Return what the store is shown with requests about a segment; empty where it asks for nothing."""
        ...

    def forget(self, segment: str) -> None:
        """Drop the last answers, which turned out wrong: the next calls ask again."""
        ...


class WithoutTokens:
    """The part of an ``EndpointResolver`` for stores that ask for no token."""

    async def token(self, segment: str) -> str:
        return ""
