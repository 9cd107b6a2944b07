"""The choice of chunks to join."""

from __future__ import annotations

import pytest

from segment_service.storage.chunk_format import ChunkForm
from segment_service.storage.compaction import joined_bytes_max, run_to_join, small_chunk_bytes
from segment_service.storage.manifest import ChunkRef


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
