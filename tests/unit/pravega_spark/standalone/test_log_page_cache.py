"""Tests which bytes of Redis's files are given back, and that the system takes the advice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from pravega_common.services.base import ServiceState
from pravega_spark.standalone.log_page_cache import LogPageCache, give_back, given_back_bytes_min, round_s
from tests.support.fakes.clock import ManualClock

MIB = given_back_bytes_min
Calls = list[tuple[str, int, int]]


@pytest.fixture
def calls() -> Calls:
    return []


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cache(tmp_path: Path, calls: Calls, clock: ManualClock) -> LogPageCache:
    (tmp_path / "appendonlydir").mkdir()

    def recorded(file: Path, start: int, end: int) -> None:
        give_back(file, start, end)
        calls.append((file.name, start, end))

    return LogPageCache(tmp_path, clock, recorded)


def grow(file: Path, size_bytes: int) -> None:
    with file.open("ab") as opened:
        opened.write(b"x" * size_bytes)


def test_what_was_there_a_round_ago_is_given_back_once(cache: LogPageCache, tmp_path: Path, calls: Calls) -> None:
    file = tmp_path / "appendonlydir" / "appendonly.aof.1.incr.aof"
    grow(file, 3 * MIB)
    cache.run_round()
    assert calls == []
    grow(file, 2 * MIB)
    cache.run_round()
    assert calls == [(file.name, 0, 3 * MIB)]
    cache.run_round()
    cache.run_round()
    assert calls[1:] == [(file.name, 3 * MIB, 5 * MIB)]


def test_a_little_growth_waits(cache: LogPageCache, tmp_path: Path, calls: Calls) -> None:
    file = tmp_path / "appendonly.aof"
    for _ in range(4):
        grow(file, MIB // 4)
        cache.run_round()
    assert calls == []
    cache.run_round()
    assert calls == [(file.name, 0, MIB)]


def test_a_file_that_begins_anew_is_given_back_from_its_start(
    cache: LogPageCache, tmp_path: Path, calls: Calls
) -> None:
    file = tmp_path / "appendonly.aof"
    for size in (4 * MIB, 2 * MIB):
        file.unlink(missing_ok=True)
        grow(file, size)
        cache.run_round()
        cache.run_round()
    assert calls == [(file.name, 0, 4 * MIB), (file.name, 0, 2 * MIB)]


def test_a_file_that_goes_away_meanwhile_is_nothing_special(tmp_path: Path) -> None:
    def gone(file: Path, start: int, end: int) -> None:
        file.unlink()
        give_back(file, start, end)

    file = tmp_path / "appendonly.aof"
    cache = LogPageCache(tmp_path, ManualClock(), gone)
    grow(file, MIB)
    for _ in range(3):
        cache.run_round()
    assert not file.exists()


def test_other_files_are_left_alone(cache: LogPageCache, tmp_path: Path, calls: Calls) -> None:
    grow(tmp_path / "temp-rewriteaof-12.aof", MIB)
    cache.run_round()
    cache.run_round()
    assert calls == []


async def pass_rounds(clock: ManualClock, condition: Callable[[], object]) -> None:
    """Moves the clock on, round by round (each in a thread), until the condition holds."""
    async with asyncio.timeout(10):
        while not condition():
            await clock.advance(round_s)
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("change", [lambda folder: None, lambda folder: (folder / "appendonlydir").rmdir()])
async def test_it_runs_until_it_is_stopped(
    cache: LogPageCache, clock: ManualClock, tmp_path: Path, calls: Calls, change: Callable[[Path], None]
) -> None:
    change(tmp_path)
    await cache.start()
    for number in range(1, 4):
        grow(tmp_path / "appendonly.aof", MIB)
        await pass_rounds(clock, lambda: len(calls) == number)  # noqa: B023 - called before the next number
    assert cache.state is ServiceState.RUNNING
    await cache.stop()


async def test_a_refusal_costs_speed_only(tmp_path: Path) -> None:
    def refuse(file: Path, start: int, end: int) -> None:
        raise PermissionError(f"{file} is not yours")

    grow(tmp_path / "appendonly.aof", MIB)
    clock = ManualClock()
    with capture_logs() as entries:
        cache = LogPageCache(tmp_path, clock, refuse)
        await cache.start()
        await pass_rounds(clock, lambda: entries and "not given back" in entries[-1]["event"])
    assert cache.state is ServiceState.RUNNING
    await cache.stop()
