"""The view in memory, and what its manifests say to a later owner, against a plain list."""

from __future__ import annotations

import random

import pytest

from segment_service.storage import segment_view
from segment_service.storage.chunk_format import ChunkForm
from segment_service.storage.chunk_names import ManifestId, ManifestKind, ManifestName
from segment_service.storage.manifest import ChunkRef, Manifest, decode, encode
from segment_service.storage.segment_view import Change, SegmentView


class Stored:
    """A segment whose manifests are written and read back."""

    def __init__(self) -> None:
        self.manifests: dict[ManifestId, Manifest] = {}
        self.bytes: list[int] = []
        self.sequence = 0
        self.epoch = 1

    def commit(self, view: SegmentView, change: Change) -> Manifest:
        self.sequence += 1
        foreign = view.foreign_after(change)
        manifest = view.next_manifest(change, ManifestId(self.epoch, self.sequence))
        data = encode(manifest)
        self.bytes.append(len(data))
        self.manifests[manifest.id] = decode(data, "stored")
        view.apply(change, manifest.name(foreign), manifest)
        return manifest

    def reopen(self) -> SegmentView:
        manifest = self.manifests[max(self.manifests)]
        base = self.manifests[manifest.base]
        name = ManifestName(7, manifest.id, ManifestKind.DELTA)
        return SegmentView.of(name, manifest, ManifestName(7, base.id, ManifestKind.BASE), base)


@pytest.mark.parametrize("seed", range(30))
def test_views_and_reopened_views_equal_the_model(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_view, "delta_chunks_max", 6)
    rng = random.Random(seed)
    stored, view = Stored(), SegmentView(7)
    chunks: list[ChunkRef] = []
    first = start = 0
    for number in range(1, 120):
        drawn = rng.random()
        if drawn < 0.6 or not chunks:
            added = tuple(
                ChunkRef(rng.choice((7, 7, 9)), 1, number * 10 + i, rng.randrange(1, 9), ChunkForm.BLOCKS, i)
                for i in range(2)
            )
            change = Change(add=added)
            chunks.extend(added)
        elif drawn < 0.8:
            length = first + sum(chunk.length for chunk in chunks)
            start = rng.randrange(start, length + (3 if drawn < 0.63 else 1))
            dropped = view.chunks_below(start)
            change = Change(drop_front=dropped, start_offset=start)
            first += sum(chunk.length for chunk in chunks[:dropped])
            del chunks[:dropped]
            if not chunks:
                first = max(first, start)
        else:
            count = rng.randrange(1, len(chunks) + 1)
            joined = ChunkRef(7, 1, number * 10, sum(chunk.length for chunk in chunks[-count:]), ChunkForm.BLOCKS, 9)
            change = Change(drop_back=count, add=(joined,))
            chunks[-count:] = [joined]
        if rng.random() < 0.05:
            stored.epoch += 1
            view = stored.reopen() if stored.manifests else view
        stored.commit(view, change)
        for each in (view, stored.reopen()):
            assert each.chunks == chunks
            assert each.start_offset == start
            assert each.first_offset == first
            assert each.length == first + sum(chunk.length for chunk in chunks)
        assert view.has_foreign or not any(chunk.segment_id == 9 for chunk in chunks)
        _check_locate(view, first, rng)


def _check_locate(view: SegmentView, first: int, rng: random.Random) -> None:
    places = [(chunk.id, within) for chunk in view.chunks for within in range(chunk.length)]
    if not places:
        return
    offset = rng.randrange(len(places))
    length = rng.randrange(len(places) - offset + 1)
    found = [
        (chunk.id, within + step)
        for chunk, within, count in view.locate(first + offset, length)
        for step in range(count)
    ]
    assert found == places[offset : offset + length]


def test_a_flush_costs_the_same_however_long_the_segment_is() -> None:
    costs: dict[int, int] = {}
    for length in (1_000, 10_000):
        stored, view = Stored(), SegmentView(7)
        for number in range(length + 128):
            stored.commit(view, Change(add=(ChunkRef(7, 1, number, 100, ChunkForm.BLOCKS, number),)))
        deltas = [size for size in stored.bytes[-128:] if size < 40 * 200]
        costs[length] = max(deltas)
        assert len(deltas) >= 127, "one base in 128 flushes"
        bases = [size for size in stored.bytes[-129:] if size >= 40 * 200]
        assert sum(bases) / 129 < length, "a base costs 40 bytes per chunk, a quarter of a byte per flush and chunk"
    assert costs[1_000] == costs[10_000] < 5_500


def test_the_first_manifest_of_an_epoch_is_a_base() -> None:
    stored, view = Stored(), SegmentView(7)
    kinds = []
    for epoch in (1, 1, 2, 2, 5):
        stored.epoch = epoch
        kinds.append(
            stored.commit(view, Change(add=(ChunkRef(7, epoch, stored.sequence, 1, ChunkForm.BLOCKS, 0),))).is_base
        )
    assert kinds == [True, False, True, False, True]
