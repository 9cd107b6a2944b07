"""Beginnings of many ranges that were read ahead, compared with those of single ones."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pravega_spark.source import known_heads
from pravega_spark.source.known_events import KnownEvents
from pravega_spark.source.known_heads import KnownHeads, events_of_heads

SIZES = st.one_of(
    st.lists(st.integers(0, 40), max_size=12),
    st.builds(lambda size, count, more: [size] * count + more, *[st.integers(0, 20)] * 2, st.lists(st.integers(0, 9))),
)
HEAD = st.tuples(st.integers(0, 5_000), SIZES, st.integers(0, 300), st.booleans())


def framed(sizes: list[int]) -> bytes:
    return b"".join(struct.pack(">ii", 0, size) + bytes(size) for size in sizes)


def heads_of(made: list[tuple[int, list[int], int, bool]]) -> tuple[dict[int, int], dict[int, memoryview]]:
    """Starts and bytes by segment id: events that are cut off somewhere, with bytes that are none behind some."""
    starts = {number * 7: start for number, (start, *_) in enumerate(made)}
    data = {
        number * 7: memoryview((framed(sizes) + (b"\xff" * 20 if is_damaged else b""))[:cut])
        for number, (_, sizes, cut, is_damaged) in enumerate(made)
    }
    return starts, data


def alone(starts: dict[int, int], data: dict[int, memoryview]) -> dict[int, KnownEvents]:
    found = {item: KnownEvents.of(starts[item], some) for item, some in data.items()}
    return {item: known for item, known in found.items() if known is not None}


@given(st.lists(HEAD, max_size=8), st.sampled_from([1, 3, 64]), st.sampled_from([0, 30, 1000]))
def test_all_together_are_found_as_each_alone(
    made: list[tuple[int, list[int], int, bool]], steps: int, equal: int
) -> None:
    starts, data = heads_of(made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_heads, "steps_together_max", steps)
        patch.setattr(known_heads, "equal_events_max", equal)
        found = events_of_heads(starts, data)
    expected = alone(starts, data)
    assert found.keys() == expected.keys()
    for item, known in expected.items():
        assert found[item].starts.tolist() == known.starts.tolist()
        assert (found[item].end, found[item].next_bytes) == (known.end, known.next_bytes)


@given(st.lists(HEAD, max_size=6), st.data())
def test_answers_are_those_about_each_alone(made: list[tuple[int, list[int], int, bool]], data: st.DataObject) -> None:
    starts, heads_data = heads_of(made)
    heads, expected = KnownHeads.of(starts, heads_data), alone(starts, heads_data)
    assert {item for item in starts if item in heads} == expected.keys()

    def offset(item: int) -> int:
        known = expected.get(item)
        borders = [] if known is None else [*known.starts.tolist(), known.end]
        is_border = bool(borders) and data.draw(st.booleans())
        drawn: int = data.draw(st.sampled_from(borders) if is_border else st.integers(0, 6_000))
        return drawn

    def asked_of(item: int) -> tuple[int, int, int]:
        start, end = sorted((offset(item), offset(item)))
        return start, end, data.draw(st.integers(1, 14))

    wanted = {item: asked_of(item) for item in [*starts, 5]}
    spans = {item: (start, end) for item, (start, end, _) in wanted.items()}
    asked = {item: start for item, (start, _) in spans.items()}
    assert heads.walked(wanted) == {
        item: walked for item, known in expected.items() if (walked := known.walked(*wanted[item])) is not None
    }
    assert heads.estimated(spans) == {
        item: about for item, known in expected.items() if (about := known.estimated(*spans[item])) is not None
    }
    assert heads.at_or_after(asked) == {
        item: found for item, known in expected.items() if (found := known.at_or_after(asked[item])) is not None
    }


def test_nothing_is_known_of_nothing() -> None:
    heads = KnownHeads.of({}, {})
    assert (heads.walked({1: (0, 1, 1)}), heads.estimated({1: (0, 1)}), heads.at_or_after({1: 0})) == ({}, {}, {})
    assert heads.of_segment(1) is None


def test_a_head_far_into_a_segment() -> None:
    """Offsets of 8 EiB are no trouble: boundaries are compared by their places in what was read."""
    start = 2**62
    heads = KnownHeads.of({3: start, 4: 0}, {3: memoryview(framed([10] * 4)), 4: memoryview(framed([10] * 2))})
    assert heads.walked({3: (start, start + 72, 3), 4: (0, 36, 5)}) == {3: (start + 54, 3), 4: (36, 2)}
    assert heads.at_or_after({3: start + 1, 4: 2**62}) == {3: start + 18}
