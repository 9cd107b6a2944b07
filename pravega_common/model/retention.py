"""Defines the retention policy of a stream."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

NO_MAXIMUM: Final = (1 << 63) - 1
"""The maximum that Pravega's clients send for a policy without one."""


class RetentionType(enum.IntEnum):
    """The unit of a retention policy. The values are stored."""

    NONE = 0
    """No retention; a configuration says so by having no policy."""
    TIME = 1
    SIZE = 2


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The part of a stream that is kept: milliseconds for ``TIME``, bytes for ``SIZE``.

    Field names and order are a stored format. A stream without retention has no policy.
    """

    retention_type: RetentionType
    minimum: int
    maximum: int = 0
    """The limit for data that subscribers have not read; 0 and ``NO_MAXIMUM`` mean no limit."""

    @classmethod
    def by_time(cls, minimum_ms: int, maximum_ms: int = NO_MAXIMUM) -> RetentionPolicy:
        """A policy that keeps events for a time."""
        return cls(RetentionType.TIME, minimum_ms, maximum_ms)

    @classmethod
    def by_size(cls, minimum_bytes: int, maximum_bytes: int = NO_MAXIMUM) -> RetentionPolicy:
        """A policy that keeps the newest bytes."""
        return cls(RetentionType.SIZE, minimum_bytes, maximum_bytes)
