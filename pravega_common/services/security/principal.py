"""Knows on whose behalf a call is served: set by the guards of the APIs, read where something depends on it."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from pravega_common.errors import AccessDenied
from pravega_common.resources import Permission
from pravega_common.services.security.access_entries import AccessEntries


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who has proved a name. ``entries``: what is permitted."""

    name: str
    entries: AccessEntries

    def require(self, resource: str, needed: Permission) -> None:
        """``AccessDenied`` unless that is permitted."""
        if not self.entries.permits(resource, needed):
            raise AccessDenied(f"user {self.name} has no {needed.name} on {resource}")


CALLER: Final[ContextVar[Principal | None]] = ContextVar("caller", default=None)
"""``None`` without authentication: everything is permitted then."""


def may_see(resource: str) -> bool:
    """Whether a list that the caller gets may name a resource."""
    caller = CALLER.get()
    return caller is None or caller.entries.permits(resource, Permission.READ)
