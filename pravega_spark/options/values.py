"""Parses the text of an option into its value.

Each parser raises ``ValueError`` with what is allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pravega_common.errors import InvalidArgument
from pravega_common.names import validate_user_name
from pravega_spark.options.limits import Limit, StartTimes


def boolean(text: str) -> bool:
    value = {"true": True, "false": False}.get(text.strip().lower())
    if value is None:
        raise ValueError("must be true or false")
    return value


def integer(minimum: int, maximum: int = 2**63 - 1) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if not minimum <= value <= maximum:
            upper = "" if maximum == 2**63 - 1 and value < minimum else f" and at most {maximum}"
            raise ValueError(f"must be a whole number of at least {minimum}{upper}")
        return value

    return parse


def choice(*values: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        for value in values:
            if text.strip().lower() == value.lower():
                return value
        raise ValueError(f"must be {' or '.join(values)}")

    return parse


def text(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text.strip()


def subscriber(text: str) -> str:
    try:
        return validate_user_name(text.strip(), "subscriber")
    except InvalidArgument as error:
        raise ValueError(f"is no name: {error}") from error


def limit(parse: Callable[[str], Limit]) -> Callable[[str], Limit]:
    def checked(text: str) -> Limit:
        try:
            return parse(text)
        except InvalidArgument as error:
            raise ValueError(f"is no position: {error}") from error

    return checked


def time_ms(text: str) -> int:
    """A time in milliseconds since 1970, rounded down: stores keep the times of events in whole ones."""
    return _time_ms(text.strip(), as_end=False)


def end_time_ms(text: str) -> int:
    """The same, rounded up: what was written within the last millisecond is before it."""
    return _time_ms(text.strip(), as_end=True)


def _time_ms(word: str, *, as_end: bool) -> int:
    if word.isdecimal():
        return _number_ms(word)
    try:
        return iso_time_ms(word, as_end=as_end)
    except ValueError as error:
        raise ValueError("must be a time such as 2026-01-31T12:00:00Z, or milliseconds since 1970") from error


_NO_MILLISECONDS: Final = range(10**7, 10**11)
"""Numbers of 8 to 11 digits, as dates without hyphens and seconds since 1970 have: as milliseconds before 1974."""
_milliseconds_max: Final = 10**13
"""In the year 2286. As many digits and more have times without separators, microseconds and nanoseconds."""


def _number_ms(word: str) -> int:
    """The milliseconds that a number says; one that was hardly meant as such is refused."""
    number_ms = int(word)
    if number_ms in _NO_MILLISECONDS:
        moment = datetime.fromtimestamp(number_ms / 1000, UTC)
        raise ValueError(
            f"{number_ms} milliseconds since 1970 are {moment:%Y-%m-%dT%H:%M:%SZ}: write a date as 2026-01-31, and "
            "seconds since 1970 with 000 behind them"
        )
    if number_ms >= _milliseconds_max:
        raise ValueError(
            f"{number_ms} milliseconds since 1970 are after the year 2286: write a time as 2026-01-31T12:00:00Z, and "
            "microseconds or nanoseconds since 1970 without their last three or six digits"
        )
    return number_ms


def iso_time_ms(word: str, *, as_end: bool) -> int:
    """The milliseconds from 1970 to an ISO time, UTC unless it says otherwise; rounded down, and ``as_end`` up."""
    moment = datetime.fromisoformat(word)
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    millisecond = timedelta(milliseconds=1)
    return -(-since // millisecond) if as_end else since // millisecond


_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|h|d|)")
_UNITS_MS: Final = {"ms": 1, "": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def duration_ms(text: str) -> int:
    """A time span in milliseconds; without a unit it is in these."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError("must be a number with ms, s, m, h or d, as in 30s")
    return int(found[1]) * _UNITS_MS[found[2]]


def duration_ms_from(minimum_ms: int) -> Callable[[str], int]:
    """``duration_ms`` that refuses a shorter one."""

    def parse(text: str) -> int:
        found_ms = duration_ms(text)
        if found_ms < minimum_ms:
            raise ValueError(f"must be at least {minimum_ms} ms")
        return found_ms

    return parse


def start_times(text: str) -> StartTimes:
    """A time for all streams, or a JSON object with one for each stream by its name."""
    if not text.lstrip().startswith("{"):
        return StartTimes(time_ms(text))
    try:
        made = json.loads(text)
    except ValueError as error:
        raise ValueError("must be a time, or a JSON object of times by stream") from error
    if not made or not all(type(value) in (str, int) for value in made.values()):
        raise ValueError('must have a time for each stream, as in {"scope/stream": "2026-01-31T12:00:00Z"}')
    return StartTimes(by_stream={name.strip(): time_ms(str(value)) for name, value in made.items()})


def pattern(text: str) -> re.Pattern[str]:
    """A regular expression."""
    try:
        return re.compile(text.strip())
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is no regular expression: {error}") from error


def names(text: str) -> tuple[str, ...]:
    """Texts separated by commas, or a JSON list of texts as ``load([…])`` gives them."""
    items: Any = text.split(",")
    if text.strip().startswith("["):
        try:
            items = json.loads(text)
        except ValueError as error:
            raise ValueError("must be a JSON list, or names separated by commas") from error
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError("must be a list of texts")
    found = tuple(dict.fromkeys(item.strip() for item in items if item.strip()))
    if not found:
        raise ValueError("must not be empty")
    return found
