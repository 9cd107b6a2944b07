"""Defines the limits that an operator sets for a scope, and the part of them that is used (docs/security.md 7)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

from pravega_common.errors import InvalidArgument

quota_count_max: Final = 1_000_000_000
"""Streams or segments: the highest limit that can be set."""


@dataclass(frozen=True, slots=True)
class ScopeQuota:
    """The limits of one scope; None is no limit, 0 lets nothing be added. Field names are a stored format."""

    streams: int | None = None
    segments: int | None = None

    def __post_init__(self) -> None:
        """``InvalidArgument`` for a limit outside 0 to ``quota_count_max``."""
        for field in dataclasses.fields(self):
            limit = getattr(self, field.name)
            if limit is not None and not 0 <= limit <= quota_count_max:
                raise InvalidArgument(f"a quota of {limit} {field.name}: the limit must be in 0..{quota_count_max}")

    @property
    def is_none(self) -> bool:
        """Whether nothing is limited."""
        return self == ScopeQuota()


@dataclass(frozen=True, slots=True)
class ScopeUse:
    """The streams of a scope that has a quota, and the segments of their current epochs."""

    streams: int = 0
    segments: int = 0


@dataclass(frozen=True, slots=True)
class DescribedQuota:
    """The limits of a scope with the use that counts against them."""

    quota: ScopeQuota
    use: ScopeUse
    is_counted: bool
    """False for a scope without limits, and while the streams that it had before are being counted: nothing is refused
    until that is done."""
