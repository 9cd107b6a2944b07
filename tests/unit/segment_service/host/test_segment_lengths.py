"""Lengths of many segments in one reply: what is missing is said, and what is wrong with one is the answer to all."""

from __future__ import annotations

import pytest

from pravega_common.errors import ContainerNotHosted, ContainerOffline, PravegaError
from pravega_common.wire import commands as c
from pravega_common.wire.versions import lengths_asked_max
from segment_service.contracts.segment_store import SegmentState
from segment_service.host.request_checks import segment_name_chars_max
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.wire_client import WireClient

NAMES = tuple(f"scope/stream/{number}.#epoch.0" for number in range(lengths_asked_max))


async def lengths(client: WireClient, *segments: str) -> tuple[int, ...]:
    answered = await client.call(c.GetSegmentLengths(7, segments), c.SegmentLengths)
    assert answered.request_id == 7
    return answered.lengths


async def test_each_segment_has_its_length_in_the_order_of_the_question(
    client: WireClient, store: InMemorySegmentStore
) -> None:
    for name in NAMES[:3]:
        await store.create_segment(name)
    await store.append(NAMES[1], [b"event"])
    await store.truncate(NAMES[1], 3)
    assert await lengths(client, NAMES[1], NAMES[3], NAMES[0], NAMES[1]) == (5, c.NO_SEGMENT, 0, 5)
    assert await lengths(client, *NAMES) == (0, 5, 0, *[c.NO_SEGMENT] * (len(NAMES) - 3))


async def test_what_is_not_in_memory_is_looked_up(
    client: WireClient, store: InMemorySegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        await store.create_segment(name)
    await store.append(NAMES[-1], [b"event"])
    in_memory = store.state_in_memory
    monkeypatch.setattr(store, "state_in_memory", lambda name: in_memory(name) if name == NAMES[0] else None)
    await store.delete(NAMES[3])
    assert await lengths(client, *NAMES) == (0, 0, 0, c.NO_SEGMENT, *[0] * (len(NAMES) - 5), 5)


@pytest.mark.parametrize("segments", [(*NAMES, "one"), (), ("",), ("n" * (segment_name_chars_max + 1),), ("\1",)])
async def test_what_cannot_be_asked_is_refused(client: WireClient, segments: tuple[str, ...]) -> None:
    refused = await client.call(c.GetSegmentLengths(3, segments), c.ErrorMessage)
    assert (refused.request_id, refused.error_code) == (3, c.ILLEGAL_ARGUMENT)


@pytest.mark.parametrize(
    ("error", "reply"),
    [
        (ContainerNotHosted(1, "container 1 is elsewhere"), c.WrongHost),
        (ContainerOffline("container 1 stops"), c.NoReply),
    ],
)
async def test_what_is_wrong_with_one_answers_all_and_keeps_the_connection(
    client: WireClient,
    store: InMemorySegmentStore,
    monkeypatch: pytest.MonkeyPatch,
    error: PravegaError,
    reply: type[c.WrongHost] | type[c.NoReply],
) -> None:
    await store.create_segment(NAMES[0])
    in_memory = store.state_in_memory

    def state_of(name: str) -> SegmentState | None:
        if name == NAMES[1]:
            raise error
        return in_memory(name)

    monkeypatch.setattr(store, "state_in_memory", state_of)
    answered = await client.call(c.GetSegmentLengths(3, NAMES[:2]), reply)
    assert answered.request_id == 3
    assert await lengths(client, NAMES[0]) == (0,)
