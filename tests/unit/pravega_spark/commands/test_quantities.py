"""Tests sizes and times as people write them."""

from __future__ import annotations

import math

import pytest

from pravega_common.byte_text import text_of_bytes
from pravega_common.errors import InvalidArgument
from pravega_spark.commands.quantities import ms_of_hours, parse_bytes, parse_time_ms, text_of_time

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000", 1000), ("512k", 524_288), ("1.5GiB", 1_610_612_736), ("2 MB", 2_097_152), (str(2**53 + 1), 2**53 + 1)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text, "--bytes") == size


@pytest.mark.parametrize("text", ["", "-1", "lots", "1x", "1e9"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(InvalidArgument, match=f"--bytes '{text}' is no size"):
        parse_bytes(text, "--bytes")


@pytest.mark.parametrize("text", ["0", "0.5", "0k", "9999999999T", str(2**63)])
def test_sizes_that_nothing_can_have(text: str) -> None:
    """Nought would mean that everything is kept, or that nothing is."""
    with pytest.raises(InvalidArgument, match=f"--bytes {text} must be at least 1 and at most {2**63 - 1} bytes"):
        parse_bytes(text, "--bytes")


def test_hours() -> None:
    assert [ms_of_hours(hours, "--hours") for hours in (1, 0.5, 1e6)] == [3_600_000, 1_800_000, 3_600_000_000_000]
    for hours in (1e-9, 1e6 + 1, 1e300, math.inf, math.nan):
        with pytest.raises(
            InvalidArgument, match=r"--hours \S+ must be at least a millisecond and at most 1000000 hours"
        ):
            ms_of_hours(hours, "--hours")


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("12h", NOW_MS - 12 * 3_600_000),
        ("1.5d", NOW_MS - 129_600_000),
        ("90s", NOW_MS - 90_000),
        ("2023-11-14T22:13:20Z", NOW_MS),
        ("2023-11-14T22:13:20", NOW_MS),
        ("2023-11-15T00:13:20+02:00", NOW_MS),
        ("1970-01-02", 86_400_000),
    ],
)
def test_times(text: str, time_ms: int) -> None:
    assert parse_time_ms(text, "--before", NOW_MS) == time_ms


def test_the_end_of_a_range_is_rounded_up() -> None:
    for text, start_ms, end_ms in (
        ("2023-11-14T22:13:20.0008Z", NOW_MS, NOW_MS + 1),
        ("2023-11-14T22:13:20.001Z", NOW_MS + 1, NOW_MS + 1),
        ("12h", NOW_MS - 12 * 3_600_000, NOW_MS - 12 * 3_600_000),
    ):
        assert parse_time_ms(text, "--from", NOW_MS) == start_ms
        assert parse_time_ms(text, "--to", NOW_MS, as_end=True) == end_ms


def test_what_is_no_time() -> None:
    with pytest.raises(InvalidArgument, match="--before 'yesterday' is no time"):
        parse_time_ms("yesterday", "--before", NOW_MS)


@pytest.mark.parametrize("text", ["999999999d", "99999999999999999999d", "1969-12-31"])
def test_times_before_all_time(text: str) -> None:
    with pytest.raises(InvalidArgument, match=f"--before '{text}' is before 1970"):
        parse_time_ms(text, "--before", NOW_MS)


def test_texts() -> None:
    assert text_of_time(NOW_MS) == "2023-11-14 22:13:20 UTC"
    assert [text_of_bytes(size) for size in (0, 1023, 1536, 5 << 30, 7 << 50)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 GiB",
        "7168.0 TiB",
    ]
