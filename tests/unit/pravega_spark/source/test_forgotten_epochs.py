"""Lost data of streams whose oldest epochs the controller has forgotten, over the fake."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pravega_common.errors import DataCorruption
from pravega_common.model.segments import SegmentRange
from pravega_spark.gateway.provisioning import forget_provisioned
from pravega_spark.source.uncovered_keys import UncoveredKeys
from tests.unit.pravega_spark.source.queries import Query, numbered, reader
from tests.unit.pravega_spark.streams import FakeStreams

EVENT_BYTES = 8 + 10


@pytest.fixture
def streams(tmp_path: Path) -> FakeStreams:
    forget_provisioned()
    return FakeStreams(tmp_path)


def halves(streams: FakeStreams) -> Query:
    """A query that has read some of each of two segments, 0 and 1."""
    streams.create("t", 2)
    streams.append("t", 0, numbered(0, 40))
    streams.append("t", 1, numbered(100, 140))
    query = Query(reader(streams, approx_bytes_per_trigger="180"))
    assert query.step() == [numbered(0, 5), numbered(100, 105)]
    return query


def replace(streams: FakeStreams, segment: int, low: float, high: float) -> int:
    (made,) = streams.scale("t", [segment], [(low, high)])
    return made


def truncate(streams: FakeStreams, cut: Mapping[int, int], oldest: int | None) -> None:
    """``oldest``: the first epoch that stays on record; None for all."""
    streams.gateway.truncate_stream("s", "t", cut)
    if oldest is not None:
        streams.gateway.forget_epochs("s", "t", oldest)


def goes_on(streams: FakeStreams, query: Query) -> list[bytes]:
    query.restart(reader(streams, fail_on_data_loss="false"))
    return sorted(query.all())


@pytest.mark.parametrize("oldest", [None, 1])
def test_an_open_segment_of_a_forgotten_epoch_is_read_on(streams: FakeStreams, oldest: int | None) -> None:
    """Not from the head again, and not after what followed."""
    query = halves(streams)
    low, high = streams.scale("t", [0], [(0.0, 0.25), (0.25, 0.5)])
    streams.append("t", low, numbered(200, 210))
    streams.append("t", high, numbered(300, 310))
    truncate(streams, {1: 0, low: 0, high: EVENT_BYTES}, oldest)
    with pytest.raises(DataCorruption, match=r"s/t was lost before it was read: segment 0\.#epoch\.0 from offset 90"):
        query.step()
    assert goes_on(streams, query) == numbered(105, 140) + numbered(200, 210) + numbered(301, 310)


@pytest.mark.parametrize("oldest", [None, 1])
def test_a_replaced_segment_of_a_forgotten_epoch_is_read_on(streams: FakeStreams, oldest: int | None) -> None:
    """No other segment of the position or the head is of an epoch that had it."""
    query = halves(streams)
    first = replace(streams, 0, 0.0, 0.5)
    upper = replace(streams, 1, 0.5, 1.0)
    second = replace(streams, first, 0.0, 0.5)
    streams.append("t", second, numbered(200, 203))
    streams.append("t", upper, numbered(140, 142))
    truncate(streams, {1: 0, second: 0}, oldest)
    assert goes_on(streams, query) == numbered(105, 142) + numbered(200, 203)


@pytest.mark.parametrize("oldest", [None, 2])
def test_a_sealed_stream_is_read_on(streams: FakeStreams, oldest: int | None) -> None:
    query = halves(streams)
    second = replace(streams, replace(streams, 0, 0.0, 0.5), 0.0, 0.5)
    streams.append("t", second, numbered(200, 203))
    streams.gateway.seal_stream("s", "t")
    truncate(streams, {1: 0, second: 0}, oldest)
    assert goes_on(streams, query) == numbered(105, 140) + numbered(200, 203)


def test_all_is_lost(streams: FakeStreams) -> None:
    query = halves(streams)
    last = streams.scale("t", streams.scale("t", [0, 1], [(0.0, 1.0)]), [(0.0, 0.7), (0.7, 1.0)])
    for index, item in enumerate(last):
        streams.append("t", item, numbered(200 + 2 * index, 202 + 2 * index))
    truncate(streams, dict.fromkeys(last, EVENT_BYTES), 2)
    assert goes_on(streams, query) == [b"event-0201", b"event-0203"]


def test_a_stream_made_again_with_fewer_epochs_is_another_one(streams: FakeStreams) -> None:
    """Its epochs come to the same numbers in time: then it is known by the segments that they have."""
    query = halves(streams)
    third = replace(streams, replace(streams, replace(streams, 0, 0.0, 0.5), 0.0, 0.5), 0.0, 0.5)
    streams.append("t", third, numbered(40, 41))
    query.limit = None
    query.restart(reader(streams))
    query.all()
    streams.gateway.seal_stream("s", "t")
    streams.gateway.delete_stream("s", "t")
    streams.create("t", 1)
    (new,) = streams.gateway.tail_cut("s", "t")
    for _ in range(4):
        with pytest.raises(DataCorruption, match=r"deleted and made again.*it is not one of its segments"):
            query.step()
        streams.append("t", new, numbered(500, 501))
        new = replace(streams, new, 0.0, 1.0)
    assert goes_on(streams, query) == [b"event-0500"] * 4


def test_what_is_truncated_while_the_loss_is_looked_at(streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is planned again."""
    query = halves(streams)
    first, upper = replace(streams, 0, 0.0, 0.5), replace(streams, 1, 0.5, 1.0)
    second = replace(streams, first, 0.0, 0.5)
    streams.append("t", upper, numbered(140, 142))
    truncate(streams, {1: 0, second: 0}, 1)
    asked = streams.gateway.current_segments

    def late(scope: str, stream: str) -> list[SegmentRange]:
        truncate(streams, {upper: EVENT_BYTES, second: 0}, 3)
        return asked(scope, stream)

    monkeypatch.setattr(streams.gateway, "current_segments", late)
    assert goes_on(streams, query) == numbered(141, 142)


def test_a_loss_costs_a_call_an_epoch(streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def noted(call: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*given: Any) -> Any:
            asked.append(given)
            return call(*given)

        return noting

    streams.create("t", 40)
    query = Query(reader(streams, fail_on_data_loss="false"))
    query.source.initialOffset()
    new = streams.scale("t", list(range(20)), [(item / 40, (item + 1) / 40) for item in range(20)])
    streams.append("t", new[3], numbered(0, 5))
    truncate(streams, {**dict.fromkeys(range(20, 40), 0), **dict.fromkeys(new, 0)}, 1)
    for name in ("epoch_segments", "successors", "head_cut", "current_segments"):
        monkeypatch.setattr(streams.gateway, name, noted(getattr(streams.gateway, name)))
    assert query.step() == [numbered(0, 5)]
    assert len(asked) <= 4


@pytest.mark.parametrize("seed", range(10))
def test_no_event_twice_whatever_is_lost(streams: FakeStreams, seed: int) -> None:
    """Random appends, scalings and truncations, with most epochs from before the head forgotten."""
    chance = random.Random(seed)
    streams.create("t", 3)
    query = Query(reader(streams, fail_on_data_loss="false", approx_bytes_per_trigger="200"))
    query.source.initialOffset()
    written, read, epoch = 0, [], 0
    for _ in range(30):
        current = streams.gateway.current_segments("s", "t")
        for item in current:
            amount = chance.randrange(6)
            streams.append("t", item.segment_id, numbered(written, written + amount))
            written += amount
        if chance.random() < 0.6:
            item = chance.choice(current)
            middle = (item.key_low + item.key_high) / 2
            is_split = chance.random() < 0.5
            borders = [item.key_low, middle, item.key_high] if is_split else [item.key_low, item.key_high]
            streams.scale("t", [item.segment_id], list(itertools.pairwise(borders)))
            epoch += 1
        if chance.random() < 0.2:
            truncate(streams, streams.gateway.tail_cut("s", "t"), epoch)
        if chance.random() < 0.7:
            read += [event for partition in query.step() or [] for event in partition]
    read += query.all()
    assert len(read) == len(set(read))
    for item in streams.gateway.current_segments("s", "t"):
        streams.append("t", item.segment_id, numbered(written, written + 1))
        written += 1
    new = sorted(query.all())
    assert new == numbered(written - len(new), written) and len(new) == len(streams.gateway.tail_cut("s", "t"))


def segment(low: float, high: float) -> SegmentRange:
    return SegmentRange("s", "t", 0, low, high)


def test_uncovered_keys() -> None:
    assert UncoveredKeys([]).gaps == [(0.0, 1.0)]
    assert UncoveredKeys([segment(0.25, 0.5), segment(0.75, 1.0)]).gaps == [(0.0, 0.25), (0.5, 0.75)]
    rounded = UncoveredKeys([segment(0.0, 0.1 + 0.2), segment(0.6, 0.9999999999999999)])
    assert rounded.gaps == [(0.1 + 0.2, 0.6)]
    assert rounded.overlap(segment(0.0, 0.31)) and rounded.overlap(segment(0.4, 0.5))
    assert not rounded.overlap(segment(0.0, 0.30000000000000007)) and not rounded.overlap(segment(0.6, 1.0))
