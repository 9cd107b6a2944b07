"""Sizes, durations and times as people write them on a command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from pravega_common.errors import InvalidArgument

_SIZE_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_TIME_UNITS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?")
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")


def parse_bytes(text: str, option: str) -> int:
    """``1000``, ``512k``, ``1.5GiB``: units are powers of 1024."""
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None:
        raise InvalidArgument(f"{option} '{text}' is no size; write for example 1000000, 512k or 10GiB")
    return int(float(match[1]) * _SIZE_UNITS[match[2]])


def parse_time_ms(text: str, option: str, now_ms: int) -> int:
    """Milliseconds since 1970 of an ISO time (UTC unless it says otherwise), or of ``12h``: so long ago."""
    ago = _DURATION.fullmatch(text.strip().lower())
    if ago is not None:
        return now_ms - int(float(ago[1]) * _TIME_UNITS[ago[2]])
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise InvalidArgument(
            f"{option} '{text}' is no time; write for example 2026-01-31T12:00:00Z, or 12h for twelve hours ago"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def text_of_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
