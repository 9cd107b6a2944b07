"""Random appends, merges, truncations and deaths of the owner: whatever an index segment says is true.

Every block of the crash model is one event, so that the content tells all boundaries and counts.
"""

from __future__ import annotations

import asyncio
import random
import re
from functools import partial

import pytest

from pravega_common.errors import SegmentNotFound
from pravega_common.names import index_segment_name
from segment_service.container.segment_container import SegmentContainer
from segment_service.event_index import indexer
from segment_service.metadata import boundary_tracker as tracker
from tests.property import crash_model
from tests.property.crash_model import CrashTest, patiently
from tests.property.test_store_against_fake import SEGMENTS, outcome, random_call
from tests.support.containers import ContainerKit
from tests.support.event_index import Truth, records_of, settled
from tests.support.eventually import eventually
from tests.support.fakes.segment_store import InMemorySegmentStore

SEEDS = 40
REGRESSIONS: tuple[int, ...] = ()
"""Seeds that failed once."""
TARGETS = ("scope/stream/0.#epoch.0", "scope/stream/1.#epoch.0")
BLOCK = re.compile(rb"<\d+:x*>")


def truth_of(content: bytes) -> Truth:
    ends = [match.end() for match in BLOCK.finditer(content)]
    assert not content or ends[-1] == len(content), "the model's content is not blocks all through"
    return Truth([0, *ends], list(range(len(ends) + 1)))


class IndexedCrashTest(CrashTest):
    """After every death also looks at the index: at once, and when it has caught up."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.records_seen = 0

    async def _check(self, container: SegmentContainer) -> None:
        await super()._check(container)
        for name in TARGETS:
            truth = truth_of(self.models[name].known)
            for records in (await records_of(container, name), await settled(container, name)):
                truth.check(records)
                self.records_seen += len(records)
            length, start = truth.offsets[-1], self.models[name].start_offset
            for target in (0, start, length, *(self.random.randrange(length + 1) for _ in range(10))):
                located = await patiently(partial(container.locate_offset, name, target))
                truth.check_located(records, max(target, start), located)
            index = await patiently(partial(container.get_info, index_segment_name(name)))
            assert not index.is_sealed


@pytest.mark.parametrize("seed", [*range(SEEDS), *REGRESSIONS])
async def test_every_record_is_a_true_boundary_with_the_true_count(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_model, "TARGETS", TARGETS)
    rng = random.Random(seed)
    # Short enough that many appends to the index are on their way when an owner dies.
    monkeypatch.setattr(indexer, "index_delay_s", rng.choice((0.0, 0.0005, 0.02)))
    monkeypatch.setattr(tracker, "indexed_bytes_min", rng.choice((1, 5_000, 64 * 1024)))
    monkeypatch.setattr(tracker, "marks_max", rng.choice((3, 4_096)))
    async with asyncio.timeout(120):
        test = IndexedCrashTest(seed)
        await test.run(crashes=5, steps=120)
        assert test.records_seen > 0


@pytest.mark.parametrize("seed", range(12))
async def test_names_that_are_used_again_begin_with_an_empty_index(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bursts of creations, deletions, merges and appends, and owners that come and go: no record of an earlier segment.

    Counts are not compared: the calls change EVENT_COUNT at random, too.
    """
    monkeypatch.setattr(indexer, "index_delay_s", 0.0)
    monkeypatch.setattr(tracker, "indexed_bytes_min", 1)
    rng = random.Random(seed)
    kit = ContainerKit()
    fake, container = InMemorySegmentStore(), await kit.open()
    seen = 0
    for _ in range(60):
        calls = [random_call(rng) for _ in range(rng.randint(1, 20))]
        burst = [call for call in calls if call[0] not in ("read", "get_info", "get_attribute")]
        expected = await asyncio.gather(*(outcome(fake, call) for call in burst))
        assert await asyncio.gather(*(outcome(container, call) for call in burst)) == expected
        seen += await check_against_fake(fake, container)
        if rng.random() < 0.1:
            await container.stop()
            container = await kit.open()
    assert seen > 0
    for segment in SEGMENTS:
        await outcome(container, ("delete", (segment,), {}))
    await container.stop()
    container = await kit.open()
    await eventually(
        lambda: not [name for name in container.metadata.ids if name.endswith("#index")],
        "the first round of the indexer deletes the indexes without a segment",
    )
    await container.stop()


async def check_against_fake(fake: InMemorySegmentStore, container: SegmentContainer) -> int:
    """The records found; all of them are ends of appends or merges of the segment that has the name now."""
    seen = 0
    for segment in SEGMENTS:
        if segment not in fake.segment_names:
            with pytest.raises(SegmentNotFound):
                await container.locate_offset(segment, 0)
            continue
        known = fake.boundaries(segment)
        try:
            records = await records_of(container, segment)
        except SegmentNotFound:
            continue  # it is about to be made
        assert known.issuperset(record.length for record in records), segment
        assert await container.locate_offset(segment, 7) in known | {0, (await container.get_info(segment)).length}
        seen += len(records)
    return seen
