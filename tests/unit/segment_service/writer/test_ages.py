"""Segments wait longer for Tier 2 where many do, in groups, and together in a container that is quiet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest

from segment_service.contracts.operations import MapSegment
from segment_service.writer.config import WriterConfig, age_groups
from tests.unit.segment_service.writer.test_bursts import Burst, running

CONFIG: Final = WriterConfig(
    gather_s=0.0,
    flush_age_s=1.0,
    many_segments=10,
    many_age_ratio_max=5.0,
    flushes_at_once_max=64,
    index_age_ratio=2,
    quiet_age_ratio=1.0,
)
QUIET: Final = replace(CONFIG, quiet_age_ratio=10.0, quiet_log_bytes=100_000)
first_id: Final = 100
behind_s: Final = 0.25
"""How long after a group fell due all of it is in Tier 2."""


def fill(burst: Burst, names: Sequence[str]) -> None:
    """Make segments with ids from ``first_id`` on, and append to each."""
    for segment_id, name in enumerate(names, first_id):
        sequence = burst.source.last_sequence + 1
        burst.log.commit(MapSegment(sequence_number=sequence, name=name, segment_id=segment_id))
        burst.append(segment_id, 10)


def due_s(segment_id: int, longest_s: float) -> float:
    return 1.0 + (longest_s - 1.0) * (segment_id % age_groups) / (age_groups - 1)


@pytest.mark.parametrize(("segments", "longest_s"), [(10, 1.0), (30, 3.0), (80, 5.0)])
async def test_the_more_segments_wait_the_longer_they_do(segments: int, longest_s: float) -> None:
    async with running(CONFIG) as burst:
        fill(burst, [f"scope/stream/{number}.#epoch.0" for number in range(segments)])
        ids = range(first_id, first_id + segments)
        await burst.pass_time(1.0 - behind_s)
        assert not [one for one in ids if await burst.stored(one)]
        await burst.pass_time(2 * behind_s)
        stored = [one for one in ids if await burst.stored(one)]
        assert set(stored) >= {one for one in ids if one % age_groups == 0}
        assert not [one for one in stored if longest_s > 1.0 and one % age_groups == age_groups - 1]
        await burst.pass_time(longest_s - 1.0)
        assert [one for one in ids if await burst.stored(one)] == list(ids)


async def test_no_group_comes_before_its_time() -> None:
    """Of 800, so many are left when half of the groups have gone that the others wait as long as before."""
    segments, longest_s = 800, 5.0
    async with running(CONFIG) as burst:
        fill(burst, [f"scope/stream/{number}.#epoch.0" for number in range(segments)])
        ids = range(first_id, first_id + segments)
        await burst.pass_time(due_s(3, longest_s) + behind_s)
        stored = [one for one in ids if await burst.stored(one)]
        assert stored == [one for one in ids if one % age_groups <= 3]


async def test_an_index_segment_waits_no_longer_than_before() -> None:
    async with running(CONFIG) as burst:
        fill(burst, [f"scope/stream/{number}.#epoch.0" for number in range(87)] + ["scope/stream/0.#epoch.0#index"])
        index = first_id + 87
        await burst.pass_time(2.0 - behind_s)
        assert not await burst.stored(index)
        await burst.pass_time(2 * behind_s)
        assert await burst.stored(index)


async def test_segments_of_a_quiet_container_wait_long_and_fall_due_together() -> None:
    """Each round of flushes costs some puts, however many bytes and segments it is of."""
    rounds_s, seconds = [], 60
    async with running(QUIET) as burst:
        fill(burst, ["scope/stream/0.#epoch.0", "scope/stream/1.#epoch.0"])
        before = [0, 0]
        for second in range(seconds):
            burst.append(first_id + second % 2, 1)
            await burst.pass_time(1.0)
            stored = [await burst.stored(one) for one in (first_id, first_id + 1)]
            waiting = 20 + second + 1 - sum(stored)
            assert waiting <= 10 + 1 or second < 10, "an append waited for longer than ten seconds"
            if stored != before:
                assert all(one > other for one, other in zip(stored, before, strict=True)), "they were flushed apart"
                rounds_s.append(second)
                before = stored
    assert seconds // 10 - 1 <= len(rounds_s) <= seconds // 10


async def test_a_segment_that_comes_later_joins_the_rounds_of_a_quiet_container() -> None:
    """Two rounds of flushes beside each other are twice the puts."""
    rounds, before, seconds = 0, [0, 0], 60
    async with running(QUIET) as burst:
        fill(burst, ["scope/stream/0.#epoch.0", "scope/stream/1.#epoch.0"])
        await burst.pass_time(11.0)
        for second in range(seconds):
            burst.append(first_id, 1)
            if second >= 6:
                burst.append(first_id + 1, 1)
            await burst.pass_time(1.0)
            stored = [await burst.stored(one) for one in (first_id, first_id + 1)]
            rounds += stored != before
            before = stored
    assert rounds <= seconds // 10 + 1


async def test_quiet_containers_of_a_store_have_times_of_their_own() -> None:
    seen = []
    for container_id in range(8):
        async with running(QUIET) as burst:
            burst.source.container_id = container_id
            fill(burst, ["scope/stream/0.#epoch.0"])
            waited_s = 0
            while not await burst.stored(first_id):
                await burst.pass_time(1.0)
                waited_s += 1
            seen.append(waited_s)
    assert len(set(seen)) >= 6
    assert max(seen) <= 10 + 1


async def test_a_container_that_becomes_busy_has_waited_for_long_enough() -> None:
    async with running(QUIET) as burst:
        fill(burst, ["scope/stream/0.#epoch.0", "scope/stream/1.#epoch.0"])
        await burst.pass_time(0.5)
        burst.append(first_id + 1, QUIET.quiet_log_bytes)
        await burst.pass_time(0.25)
        assert not await burst.stored(first_id)
        await burst.pass_time(0.5)
        assert await burst.stored(first_id)


async def test_what_was_logged_far_behind_falls_due_in_a_quiet_container_too() -> None:
    async with running(replace(QUIET, behind_bytes_max=5_000)) as burst:
        fill(burst, ["scope/stream/0.#epoch.0", "scope/stream/1.#epoch.0"])
        burst.append(first_id + 1, 6_000)
        await burst.pass_time(0.25)
        assert await burst.stored(first_id)


async def test_many_segments_of_a_quiet_container_fall_due_in_groups() -> None:
    segments, groups = 40, 5
    async with running(replace(QUIET, quiet_group_segments=10)) as burst:
        fill(burst, [f"scope/stream/{number}.#epoch.0" for number in range(segments)])
        ids = range(first_id, first_id + segments)
        seen: list[int] = []
        for _ in range(10):
            await burst.pass_time(1.0)
            seen.append(len([one for one in ids if await burst.stored(one)]))
        assert seen[-1] == segments
        assert len(set(seen)) >= groups, "all fell due together"


async def test_nothing_waits_in_a_quiet_container_where_nothing_is_to_wait() -> None:
    async with running(replace(QUIET, flush_age_s=0.0)) as burst:
        fill(burst, ["scope/stream/0.#epoch.0"])
        await burst.pass_time(0.25)
        assert await burst.stored(first_id)
