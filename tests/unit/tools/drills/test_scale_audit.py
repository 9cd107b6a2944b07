"""Checks that the audit of the scale drill sees what went wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from tests.drills.scale.audit import Findings, audit
from tests.drills.scale.plan import Plan

PLAN = replace(Plan.of(12), keys=4, events_per_trigger=8)
Row = tuple[int, int, int, bool]
"""Number, segment, offset, whether the rest of the event is as it was written."""


def write(folder: Path, batch: int, rows: list[Row], part: int = 0) -> None:
    names = ("number", "segment_id", "offset", "is_whole")
    columns = {name: [row[index] for row in rows] for index, name in enumerate(names)}
    (folder / f"batch={batch:06}").mkdir(exist_ok=True)
    parquet.write_table(pa.table(columns), folder / f"batch={batch:06}" / f"part-{part}.parquet")


def good(first: int, last: int, segment: int, step: int = 1) -> list[Row]:
    return [(number, segment, number * 108, True) for number in range(first, last, step)]


def test_all_as_written(tmp_path: Path) -> None:
    """Keys 0 and 2 in one segment, 1 and 3 in another, and then all in a third one."""
    write(tmp_path, 0, good(0, 8, 0, 2), 0)
    write(tmp_path, 0, good(1, 8, 1, 2), 1)
    write(tmp_path, 3, good(8, 12, 1 << 32))
    found = audit(tmp_path, PLAN)
    assert found == Findings(events=12, batches=2, batch_events_max=8, segments=[0, 1, 1 << 32])
    assert found.exact


@pytest.mark.parametrize(
    ("second_batch", "wrong"),
    [
        (good(8, 11, 9), {"lost": 1}),
        ([*good(8, 12, 9), (11, 9, 5000, True)], {"duplicated": 1}),
        ([*good(8, 12, 9), (4, 9, 5000, True)], {"duplicated": 1, "out_of_order": 1}),
        ([*good(8, 12, 9), (12, 9, 5000, True)], {"phantom": 1}),
        ([*good(8, 11, 9), (11, 9, 5000, False)], {"damaged": 1}),
        ([*good(8, 11, 9), (11, 9, 1, True)], {"unsorted": 1}),
        ([*good(4, 8, 9), *good(8, 12, 9)], {"duplicated": 4}),
    ],
)
def test_what_is_wrong_is_counted(tmp_path: Path, second_batch: list[Row], wrong: dict[str, int]) -> None:
    write(tmp_path, 0, good(0, 8, 0))
    write(tmp_path, 1, second_batch)
    found = audit(tmp_path, PLAN)
    names = ("lost", "duplicated", "out_of_order", "phantom", "damaged", "split", "unsorted", "over_limit")
    assert {name: getattr(found, name) for name in names if getattr(found, name)} == wrong
    assert not found.exact


def test_batches_that_change_places(tmp_path: Path) -> None:
    write(tmp_path, 0, good(4, 8, 0))
    write(tmp_path, 1, good(0, 4, 1))
    write(tmp_path, 2, good(8, 12, 2))
    assert audit(tmp_path, PLAN).out_of_order == 4


def test_a_key_in_two_segments_of_one_batch_and_a_batch_that_is_too_large(tmp_path: Path) -> None:
    write(tmp_path, 0, [*good(0, 8, 0), *good(8, 12, 1)])
    found = audit(tmp_path, PLAN)
    assert (found.split, found.over_limit, found.batch_events_max) == (4, 1, 12)


def test_nothing_was_read(tmp_path: Path) -> None:
    assert audit(tmp_path, PLAN) == Findings(lost=12)
