"""Defines the limits that an operator sets for a scope, and the part of them that is used (docs/security.md 7)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

from pravega_common.errors import InvalidArgument

quota_count_max: Final = 1_000_000_000
"""Streams or segments: the highest limit that can be set."""
quota_rate_min: Final = 65_536
"""Bytes a second: the lowest limit that can be set. An event of 8 MiB is worth two minutes of it."""
quota_rate_max: Final = 1 << 50
"""Bytes a second: the highest limit that can be set."""

_RATES: Final = ("bytes_in", "bytes_out")


@dataclass(frozen=True, slots=True)
class ScopeQuota:
    """The limits of one scope; None is no limit, 0 lets nothing be added. Field names are a stored format."""

    streams: int | None = None
    segments: int | None = None
    bytes_in: int | None = None
    """Bytes a second that writers may send to all stores together."""
    bytes_out: int | None = None
    """Bytes a second that all stores together send to readers."""

    def __post_init__(self) -> None:
        """``InvalidArgument`` for a number outside 0 to ``quota_count_max``, or a rate outside ``quota_rate_min`` to
        ``quota_rate_max``."""
        for field in dataclasses.fields(self):
            limit = getattr(self, field.name)
            low, high = (quota_rate_min, quota_rate_max) if field.name in _RATES else (0, quota_count_max)
            if limit is not None and not low <= limit <= high:
                raise InvalidArgument(f"a quota of {limit} {field.name}: the limit must be in {low}..{high}")

    @property
    def is_none(self) -> bool:
        """Whether nothing is limited."""
        return self == ScopeQuota()

    @property
    def limits_bytes(self) -> bool:
        """Whether there is a limit of bytes a second."""
        return self.bytes_in is not None or self.bytes_out is not None


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
