"""Batches of questions that come again: what did not change costs no work, and nothing old is answered."""

from __future__ import annotations

from pravega_common.wire import codec
from pravega_common.wire import commands as c
from segment_service.contracts.segment_store import SegmentState
from segment_service.host import info_batches
from segment_service.host.info_batches import InfoBatch, RememberedBatches, begins_with_info
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.wire_client import WireClient

NAMES = [f"scope/stream/{number}.#epoch.0" for number in range(4)]
QUESTIONS = [c.GetStreamSegmentInfo(place, name) for place, name in enumerate(NAMES)]
FRAMES = tuple(map(codec.encode, QUESTIONS))


async def asked(client: WireClient) -> list[c.Command]:
    answered = await client.call(c.RequestBatch(7, FRAMES), c.RequestBatchAnswered)
    return [codec.decode_frame(reply) for reply in answered.replies]


async def test_a_batch_that_comes_again_is_answered_as_it_is_then(
    client: WireClient, store: InMemorySegmentStore
) -> None:
    for name in NAMES[:3]:
        await store.create_segment(name)
    first = await asked(client)
    assert [type(reply) for reply in first] == [*[c.StreamSegmentInfo] * 3, c.NoSuchSegment]
    for _ in range(2):  # It is remembered at the second time, and answered from memory at the third.
        assert await asked(client) == first
    await store.append(NAMES[0], [b"event"])
    await store.seal(NAMES[1])
    await store.delete(NAMES[2])
    await store.create_segment(NAMES[3])
    longer, sealed, gone, new = await asked(client)
    assert isinstance(longer, c.StreamSegmentInfo)
    assert longer.write_offset == 5
    assert isinstance(sealed, c.StreamSegmentInfo)
    assert sealed.is_sealed
    assert isinstance(gone, c.NoSuchSegment)
    assert isinstance(new, c.StreamSegmentInfo)
    await store.truncate(NAMES[0], 3)
    truncated, *_ = await asked(client)
    assert isinstance(truncated, c.StreamSegmentInfo)
    assert (truncated.start_offset, truncated.segment, truncated.request_id) == (3, NAMES[0], 0)


async def test_a_batch_with_another_request_is_served_as_before(
    client: WireClient, store: InMemorySegmentStore
) -> None:
    await store.create_segment(NAMES[0])
    frames = (FRAMES[0], codec.encode(c.SealSegment(1, NAMES[0])))
    answered = await client.call(c.RequestBatch(7, frames), c.RequestBatchAnswered)
    kinds = [type(codec.decode_frame(reply)) for reply in answered.replies]
    assert kinds == [c.StreamSegmentInfo, c.SegmentSealed]


def test_only_replies_that_changed_are_encoded_again() -> None:
    states = {name: SegmentState(0, 10, False, 5) for name in NAMES}
    batch = InfoBatch(QUESTIONS)
    first, missing = batch.replies(lambda question: states[question.segment])
    assert not missing
    again, _ = batch.replies(lambda question: states[question.segment])
    assert all(one is other for one, other in zip(first, again, strict=True))
    states[NAMES[2]] = SegmentState(0, 11, False, 6)
    changed, _ = batch.replies(lambda question: states[question.segment])
    assert [one is other for one, other in zip(first, changed, strict=True)] == [True, True, False, True]
    expected = c.StreamSegmentInfo(2, NAMES[2], True, False, False, 6, 11, 0)
    assert codec.decode_frame(changed[2]) == expected


def test_what_has_to_be_served_by_itself_is_named_every_time() -> None:
    batch = InfoBatch(QUESTIONS)
    _, missing = batch.replies(lambda question: None if question.request_id == 1 else SegmentState(0, 1, False, 1))
    assert missing == [1]
    _, missing = batch.replies(lambda _: None)
    assert missing == [0, 1, 2, 3], "a reply of before is no answer"


def test_batches_are_remembered_within_a_limit() -> None:
    remembered = RememberedBatches(bytes_max=20)
    batches = {asked: InfoBatch(()) for asked in (b"a" * 8, b"b" * 8, b"c" * 8)}
    for key in (b"a" * 8, b"b" * 8):
        remembered.remember(key, batches[key])
        remembered.remember(key, batches[key])
    assert remembered.bytes == 16
    assert remembered.find(b"a" * 8) is batches[b"a" * 8]
    remembered.remember(b"c" * 8, batches[b"c" * 8])
    assert remembered.find(b"b" * 8) is None, "it was asked longest ago"
    assert remembered.find(b"a" * 8) is batches[b"a" * 8]
    assert remembered.bytes == 16
    remembered.remember(b"d" * 30, InfoBatch(()))
    assert remembered.bytes == 0


def test_a_batch_that_comes_once_leaves_nothing_behind() -> None:
    """A commit asks once about its transactions, whose names are never used again."""
    remembered = RememberedBatches()
    batch = InfoBatch(())
    for asked, is_known in ((b"a", False), (b"b", False), (b"a", True)):
        assert remembered.find(asked) is None
        remembered.came(asked, batch)
        assert (remembered.find(asked) is batch) == is_known
    assert remembered.bytes == 1
    for number in range(info_batches.seen_max):
        remembered.came(b"%d" % number, batch)
    remembered.came(b"b", batch)
    assert remembered.find(b"b") is None, "that it came is forgotten, too"


def test_a_batch_is_known_by_its_first_request() -> None:
    assert begins_with_info(FRAMES)
    assert not begins_with_info(())
    assert not begins_with_info((codec.encode(c.SealSegment(1, NAMES[0])),))
    assert info_batches.remembered_bytes_max >= 1024 * 1024, "the largest batch fits"
