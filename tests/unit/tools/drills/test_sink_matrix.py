"""Checks that the judge of the sink's crash matrix sees what is wrong."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pravega_common.runtime import failpoints
from tests.drills.sink import records
from tests.drills.sink.arming import Failpoints
from tests.drills.sink.audit import Tally, tally
from tests.drills.sink.copy import Copy
from tests.drills.sink.run_matrix import Outcome, Row, rounds
from tests.drills.sink.runs import Run


@pytest.mark.parametrize(
    ("found", "seen"),
    [
        ([0, 1, 10, 11], Tally(events=4)),
        ([1, 0, 11, 10], Tally(events=4)),
        ([0, 1, 11], Tally(events=3, lost=1)),
        ([0, 1, 10, 11, 1, 11], Tally(events=6, duplicated=2)),
        ([10, 0, 1, 11], Tally(events=4, out_of_order=1)),
        ([0, 1, 10, 0, 11], Tally(events=5, duplicated=1)),
        ([0, 1, 10, 11, 12], Tally(events=5, phantom=1)),
        ([], Tally(lost=4)),
    ],
)
def test_a_run_is_counted(found: list[int], seen: Tally) -> None:
    counted = tally(found, [0, 1, 10, 11])
    assert counted == seen
    assert counted.exact == (seen == Tally(events=4))


@pytest.mark.parametrize(
    "damage",
    [
        {},
        {"key": b"k2"},
        {"value": b"000012"},
        {"value": None},
        {"headers": None},
        {"headers": [{"key": "number", "value": b"000011"}]},
        {"headers": [{"key": "number", "value": None}]},
        {"timestamp": records.first_time},
    ],
)
def test_every_part_of_a_record_is_compared(damage: dict[str, Any]) -> None:
    found = records.numbers_of([records.record_of(10), {**records.record_of(11), **damage}])
    counted = tally(found, [10, 11])
    assert counted == (Tally(events=2, lost=1, phantom=1) if damage else Tally(events=2))
    assert records.record_of(14)["value"] is None, "a tombstone"


def row(exactly_once: bool, *outcomes: Outcome) -> Row:
    made = Row("point", "what", exactly_once)
    made.add(outcomes, 1.0)
    return made


def test_what_is_good_depends_on_the_mode() -> None:
    clean, twice, lost = Outcome(Tally(4)), Outcome(Tally(5, duplicated=1)), Outcome(Tally(3, lost=1))
    untold = Outcome(Tally(), "it did not come")
    assert row(True, clean, clean).good
    assert not row(True, clean, twice).good
    assert row(False, clean, twice).good
    for mode in (True, False):
        assert not row(mode, clean, lost).good
        assert not row(mode, clean, untold).good
    assert row(True, clean, untold).runs == 2


def test_every_run_is_in_one_round() -> None:
    assert [list(seeds) for seeds in rounds(5, 2)] == [[0, 1], [2, 3], [4]]
    assert [len(seeds) for seeds in rounds(30, 10)] == [10, 10, 10]


def test_thirty_runs_have_all_choices_about_equally_often() -> None:
    copy = Copy("run", "controller", "scope", "source", ("to",), "checkpoint")
    picked = Counter(Run("point", seed, (copy,)).pick(list("abcdefgh")) for seed in range(30))
    assert len(picked) == 8
    assert min(picked.values()) >= 3


def test_failpoints_are_armed_for_one_scope(tmp_path: Path) -> None:
    armed = Failpoints(tmp_path)
    failpoints.arm_text(armed.environment({"test.step"})[failpoints.ENVIRONMENT_VARIABLE])
    try:
        armed.arm("test.step", "error", hit=2, scope="mine", counted=3)
        failpoints.failpoint("test.step", "mine/stream")
        failpoints.failpoint("test.step", "another/stream")
        assert not armed.taken_by("test.step", 2, "mine")
        with pytest.raises(failpoints.FailpointError):
            failpoints.failpoint("test.step", "mine/stream")
        assert armed.taken_by("test.step", 2, "mine") == os.getpid()
        assert not armed.taken_by("test.step", 3, "mine")
        armed.disarm()
        failpoints.failpoint("test.step", "mine/stream")
        assert not armed.taken_by("test.step", 2, "mine")
    finally:
        failpoints.disarm_all()
