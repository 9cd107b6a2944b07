"""Parses and prints sizes, ages and times as people write them on a command line.

The parser of sizes is our own because units are powers of 1024 here, as in Spark and Redis: ``512k`` is 524288. The
libraries that are well kept (pydantic's ``ByteSize``) read it as 512000, and none of them reads an age such as ``12h``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from pravega_common.errors import InvalidArgument
from pravega_spark.options.values import iso_time_ms

_SIZE_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
ms_per_hour: Final = 3_600_000
_TIME_UNITS: Final = {"s": 1_000, "m": 60_000, "h": ms_per_hour, "d": 24 * ms_per_hour}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?")
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")
size_bytes_max: Final = 2**63 - 1
"""What the controller's messages hold."""
hours_max: Final = 1_000_000
"""More than a century."""


def parse_bytes(text: str, option: str) -> int:
    """Parses ``1000``, ``512k``, ``1.5GiB``: units are powers of 1024; at least one byte."""
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None:
        raise InvalidArgument(f"{option} '{text}' is no size; write for example 1000000, 512k or 10GiB")
    size_bytes = int(Decimal(match[1]) * _SIZE_UNITS[match[2]])
    if not 1 <= size_bytes <= size_bytes_max:
        raise InvalidArgument(f"{option} {text} must be at least 1 and at most {size_bytes_max} bytes")
    return size_bytes


def ms_of_hours(hours: float, option: str) -> int:
    """Converts hours to milliseconds, at least one."""
    if not 1 <= hours * ms_per_hour <= hours_max * ms_per_hour:
        raise InvalidArgument(f"{option} {hours:g} must be at least a millisecond and at most {hours_max} hours")
    return int(hours * ms_per_hour)


def parse_time_ms(text: str, option: str, now_ms: int, *, as_end: bool = False) -> int:
    """Parses an ISO time (UTC unless it says otherwise) or an age such as ``12h`` to milliseconds since 1970.

    Rounded down, and ``as_end`` up: stores keep the times of events in whole ones, rounded down.
    """
    ago = _DURATION.fullmatch(text.strip().lower())
    time_ms = now_ms - int(Decimal(ago[1]) * _TIME_UNITS[ago[2]]) if ago else _iso_time_ms(text, option, as_end)
    if time_ms < 0:
        raise InvalidArgument(f"{option} '{text}' is before 1970, when nothing was written yet")
    return time_ms


def is_time(text: str) -> bool:
    """Whether a text is meant as a time or an age: a word begins with a letter, and a stream cut with ``H4sI``."""
    return text.strip()[:1].isdecimal()


def _iso_time_ms(text: str, option: str, as_end: bool) -> int:
    try:
        return iso_time_ms(text.strip(), as_end=as_end)
    except ValueError as error:
        raise InvalidArgument(
            f"{option} '{text}' is no time; write for example 2026-01-31T12:00:00Z, or 12h for twelve hours ago"
        ) from error


def text_of_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
