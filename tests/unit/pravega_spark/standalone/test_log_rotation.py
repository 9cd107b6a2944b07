"""Tests that logs stay within their size, while a child goes on writing to the file that it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from pravega_spark.standalone import log_rotation
from pravega_spark.standalone.log_rotation import LogRotation, logs_kept, look_period_s, rotate
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock


def test_lines_of_a_child_that_goes_on_are_all_there(tmp_path: Path) -> None:
    file = tmp_path / "store.log"
    with file.open("ab", buffering=0) as child:
        for number in range(30):
            child.write(b"line %d\n" % number)
            if number % 10 == 9:
                rotate(file)
        child.write(b"last\n")
    assert file.read_text() == "last\n"
    older = [file.with_name(f"store.log.{number}").read_text() for number in (3, 2, 1)]
    assert "".join(older).splitlines() == [f"line {number}" for number in range(30)]


def test_the_oldest_go(tmp_path: Path) -> None:
    file = tmp_path / "store.log"
    for number in range(logs_kept + 3):
        file.write_text(f"{number}")
        rotate(file)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "store.log",
        *(f"store.log.{number}" for number in range(1, logs_kept + 1)),
    ]
    assert file.with_name("store.log.1").read_text() == f"{logs_kept + 2}"


async def test_only_what_grew_too_large_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_rotation, "log_bytes_max", 100)
    large, small, missing = (tmp_path / name for name in ("large.log", "small.log", "missing.log"))
    large.write_bytes(bytes(101))
    small.write_bytes(bytes(100))
    clock = ManualClock()
    rotation = LogRotation([missing, large, small], clock)
    await rotation.start()
    await eventually(lambda: large.stat().st_size == 0, "a rotation")
    large.write_bytes(bytes(101))
    await eventually(lambda: bool(clock._sleepers), "the pause")
    await clock.advance(look_period_s)
    await eventually(lambda: (tmp_path / "large.log.2").exists(), "another rotation")
    assert small.stat().st_size == 100
    assert rotation.is_running
    await rotation.stop()


def test_where_there_is_no_room_the_older_ones_stay(tmp_path: Path) -> None:
    """Each look at a full disk put the older ones aside, and after three of them they were gone."""
    file = tmp_path / "store.log"
    for number in range(logs_kept + 1):
        file.write_text(f"{number}")
        rotate(file)
    file.write_text("last")
    before = {entry.name: entry.read_text() for entry in tmp_path.iterdir()}
    unwritable = tmp_path / "store.log.new"
    unwritable.mkdir()
    for _ in range(logs_kept):
        with pytest.raises(OSError):
            rotate(file)
    unwritable.rmdir()
    assert {entry.name: entry.read_text() for entry in tmp_path.iterdir()} == before
