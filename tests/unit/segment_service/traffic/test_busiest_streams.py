"""A bounded table of streams: the busiest are in it, and every byte is counted once."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from segment_service.traffic.busiest_streams import BusiestStreams, StreamTraffic, idle_max_s


def came(**amounts: int) -> dict[str, StreamTraffic]:
    return {f"s/{name}": StreamTraffic(in_bytes=amount) for name, amount in amounts.items()}


def counted(streams: BusiestStreams) -> Mapping[str, int]:
    return {stream: counts.in_bytes for stream, counts in streams.listed.items()}


def test_the_busiest_are_listed_and_the_rest_is_summed() -> None:
    streams = BusiestStreams(2)
    streams.tick(came(a=10, b=300, c=200), 1.0)
    assert counted(streams) == {"s/b": 300, "s/c": 200}
    assert streams.others.in_bytes == 10
    streams.tick({"s/b": StreamTraffic(1, 2, 3)}, 2.0)
    assert streams.listed["s/b"] == StreamTraffic(301, 2, 3)


def test_a_stream_much_busier_than_a_listed_one_takes_its_place() -> None:
    streams = BusiestStreams(2)
    for second in range(50):
        streams.tick(came(a=100, b=1_000, c=150), float(second))
    assert set(streams.listed) == {"s/b", "s/c"}, "the busiest of the first tick stay"
    others = streams.others.in_bytes
    streams.tick(came(a=100, b=1_000, c=150, d=301), 51.0)
    assert counted(streams)["s/d"] == 301, "and begins at zero"
    streams.tick(came(c=150), 52.0)
    assert streams.others.in_bytes == others + 100 + 150 + 150, "one that left is one of the others"


def test_an_idle_stream_gives_its_place_up() -> None:
    streams = BusiestStreams(1)
    streams.tick(came(a=1_000), 0.0)
    for second in range(1, 60):
        streams.tick({}, float(second))
    streams.tick(came(b=1), 61.0)
    assert set(streams.listed) == {"s/b"}


def test_a_stream_without_traffic_is_listed_for_an_hour() -> None:
    streams = BusiestStreams(5)
    streams.tick(came(a=1_000), 0.0)
    streams.tick({}, idle_max_s)
    assert set(streams.listed) == {"s/a"}
    streams.tick({}, idle_max_s + 1)
    assert not streams.listed


@given(st.lists(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 10**6)), max_size=30), st.integers(0, 4))
def test_every_byte_is_counted_once(ticks: list[dict[str, int]], streams_max: int) -> None:
    """In the counter that its stream has then, or in the sum; counters of streams that stay listed never go back."""
    streams = BusiestStreams(streams_max)
    total = 0
    for second, amounts in enumerate(ticks):
        before, others = counted(streams), streams.others.in_bytes
        streams.tick(came(**amounts), float(second))
        after = counted(streams)
        assert len(after) <= streams_max
        assert all(after[stream] >= count for stream, count in before.items() if stream in after)
        risen = sum(count - before.get(stream, 0) for stream, count in after.items())
        total += risen + streams.others.in_bytes - others
    assert total == sum(sum(amounts.values()) for amounts in ticks)
