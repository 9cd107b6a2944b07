"""The comparison of the soak drill tells what grows from what only moves."""

from __future__ import annotations

import pytest

from tests.drills.soak.growth import growths
from tests.drills.soak.main import parse

STEADY = [100.0] * 30
LEAK = [100.0 + 2 * index for index in range(30)]
SAW_TOOTH = [100.0 + 10 * (index % 10) for index in range(30)]
LATE_SAW_TOOTH = [100.0 + (30 if index > 21 and index % 2 else 0) for index in range(30)]
FILLING = [min(100.0, 10.0 * index) for index in range(30)]
LITTLE = [index / 10 for index in range(30)]


@pytest.mark.parametrize(
    ("values", "grows"),
    [(STEADY, False), (LEAK, True), (SAW_TOOTH, False), (LATE_SAW_TOOTH, False), (FILLING, False), (LITTLE, False)],
)
def test_what_grows(values: list[float], grows: bool) -> None:
    (growth,) = growths([{"size": value} for value in values])
    assert growth.grows is grows


def test_the_log_of_a_table_counts_from_where_it_is_compacted() -> None:
    samples = [{"small: KiB": 10.0 * index, "large: KiB": 1_000.0 * index} for index in range(30)]
    assert [growth.grows for growth in growths(samples)] == [False, True]


def test_memory_that_a_process_keeps_is_no_leak_of_it() -> None:
    samples = [{"segment-store-0: RSS MiB": value, "segment-store-0: heap MiB": value} for value in LEAK]
    assert [growth.grows for growth in growths(samples)] == [False, True]


def test_a_size_that_comes_late_was_nothing_before() -> None:
    samples = [{"old": 1.0}] * 20 + [{"old": 1.0, "new": 50.0}] * 10
    assert [(growth.name, growth.middle, growth.grows) for growth in growths(samples)] == [
        ("old", 1.0, False),
        ("new", 0.0, True),
    ]


def test_a_run_too_short_to_compare_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(["--minutes", "3"]).minutes == 3
    with pytest.raises(SystemExit):
        parse(["--minutes", "1"])
    assert "must be 3 at least" in capsys.readouterr().err


def test_entries_that_wait_for_retention_come_and_go() -> None:
    """Those of the metadata of a stream that is scaled all the time, as a drill saw them: at 40 minutes there were as
    many as at ten."""
    seen = [91, 91, 91, 85, 85, 85, 88, 88, 82, 82, 82, 82, 82, 82, 82, 85, 85, 79, 97, 97, 91, 97, 97, 88, 91, 91, 88]
    few, many = [{"table: entries": value} for value in map(float, seen)], [{"table: entries": value} for value in LEAK]
    assert [growth.grows for growth in (*growths(few), *growths(many))] == [False, True]
