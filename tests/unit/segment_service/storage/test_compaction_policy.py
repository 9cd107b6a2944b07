"""The choice of chunks to join, and of the moment."""

from __future__ import annotations

import pytest

from segment_service.storage.chunk_format import ChunkForm
from segment_service.storage.compaction import (
    joined_bytes_max,
    rest_max_s,
    rest_ratio,
    run_chunks_min,
    run_to_join,
    small_chunk_bytes,
)
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.manifest import ChunkRef
from tests.contract.segment_storage_contract import opened
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock


def chunks(*lengths: int) -> list[ChunkRef]:
    return [ChunkRef(1, 1, number, length, ChunkForm.BLOCKS, 0) for number, length in enumerate(lengths)]


@pytest.mark.parametrize(
    ("lengths", "wanted"),
    [
        ([], 0),
        ([10] * 15, 0),
        ([10] * 16, 16),
        ([10] * 40, 40),
        ([small_chunk_bytes, *[10] * 20], 20),
        ([*[10] * 30, small_chunk_bytes], 0),
        ([1_000, *[10] * 20], 20),
        ([200, *[10] * 20], 21),
        ([10] * 1_000, 128),
        ([small_chunk_bytes - 1] * 40, joined_bytes_max // (small_chunk_bytes - 1)),
    ],
)
def test_runs(lengths: list[int], wanted: int) -> None:
    assert run_to_join(chunks(*lengths)) == wanted


def test_a_trickle_is_rewritten_a_logarithmic_number_of_times() -> None:
    lengths: list[int] = []
    rewritten = 0
    for _ in range(20_000):
        lengths.append(100)
        count = run_to_join(chunks(*lengths[-200:]))
        if count:
            rewritten += sum(lengths[-count:])
            lengths[-count:] = [sum(lengths[-count:])]
    assert len(lengths) < 100
    assert rewritten < 12 * 20_000 * 100


class RecordingClock(ManualClock):
    """Knows how long was slept, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.slept_s: list[float] = []

    async def sleep(self, delay_s: float) -> None:
        self.slept_s.append(delay_s)


async def test_segments_that_grow_alike_are_not_due_at_the_same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = await opened(InMemoryChunkStorage(), 1, clock=ManualClock())
    due: list[int] = []

    async def compact(segment_id: int) -> bool:
        due.append(segment_id)
        return True

    monkeypatch.setattr(storage.compactor, "compact", compact)
    segments = range(100, 100 + run_chunks_min)
    for number in range(2 * run_chunks_min - 1):
        due.clear()
        for segment_id in segments:
            await storage.write(segment_id, number, [b"x"])
        await storage.compactor.compact_waiting()
        assert len(due) == max(0, number + 2 - run_chunks_min)


async def test_the_service_rests_behind_each_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = RecordingClock()
    storage = await opened(InMemoryChunkStorage(), 1, clock=clock)
    takes_s = iter((0.1, 0.2, 100.0))

    async def compact(segment_id: int) -> bool:
        await clock.advance(next(takes_s))
        return True

    monkeypatch.setattr(storage.compactor, "compact", compact)
    for number in range(run_chunks_min):
        for segment_id in (run_chunks_min, 2 * run_chunks_min, 3 * run_chunks_min):
            await storage.write(segment_id, number, [b"x"])
    await storage.compactor.start()
    await eventually(lambda: len(clock.slept_s) >= 3)
    await storage.compactor.stop()
    assert clock.slept_s == pytest.approx([rest_ratio * 0.1, rest_ratio * 0.2, rest_max_s])
