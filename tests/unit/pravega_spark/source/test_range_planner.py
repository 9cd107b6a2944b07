"""Positions to partitions, as plain arithmetic."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pravega_common.invariants import check
from pravega_spark.options.definitions import partitions_max
from pravega_spark.source.offsets import SourceOffset
from pravega_spark.source.range_planner import (
    Span,
    lag_bytes,
    pack,
    pack_bytes_of,
    packed_bytes_min,
    packed_partitions_min,
    packs_of_batch,
    share,
    spans_of_batch,
    split,
)


def test_batch_from_its_offsets_alone() -> None:
    start = {"s/t": {0: 5, 1: 7}, "s/u": {0: 0}}
    end = SourceOffset({"s/t": {1: 9, 2: 0, 3: 4}, "s/u": {0: 0}}, start, {"s/t": {0: 50}})
    assert spans_of_batch(start, end) == [
        Span("s", "t", 0, 5, 50),
        Span("s", "t", 1, 7, 9),
        Span("s", "t", 3, 0, 4),
    ]


def test_a_position_that_goes_back_is_of_another_stream() -> None:
    start = {"s/t": {0: 5000, 1: 5000, 2: 300}}
    end = SourceOffset({"s/t": {0: 300, 2: 300}}, start, {"s/t": {1: 4999}})
    assert spans_of_batch(start, end) == [Span("s", "t", 0, 0, 300), Span("s", "t", 1, 0, 4999)]


@given(st.integers(1, 10**9), st.dictionaries(st.tuples(st.just("s/t"), st.integers(0, 99)), st.integers(0, 10**9)))
def test_shares_fit_and_starve_nobody(limit: int, backlogs: dict[tuple[str, int], int]) -> None:
    shares = share(limit, backlogs)
    assert shares.keys() == backlogs.keys()
    assert sum(shares.values()) <= limit + len(backlogs)
    for key, backlog in backlogs.items():
        assert (backlog > 0) <= shares[key] <= backlog


def test_split_by_count_and_size() -> None:
    spans = [Span("s", "t", 0, 100, 1100), Span("s", "t", 1, 0, 10)]

    def exact(span: Span, offset: int) -> int:
        return offset

    def tens(span: Span, offset: int) -> int:
        return -(-offset // 10) * 10

    assert split(spans, None, None, exact) == spans
    assert split(spans, 2, None, exact) == spans
    pieces = split(spans, None, 300, tens)
    assert [(piece.start, piece.end) for piece in pieces] == [(100, 350), (350, 600), (600, 850), (850, 1100), (0, 10)]
    assert len(split(spans, 8, None, tens)) >= 8
    assert split([], 8, 1, tens) == []


def test_a_tiny_limit_of_bytes_does_not_make_a_partition_of_each_byte() -> None:
    spans = [Span("s", "t", segment_id, 0, 2_000_000_000) for segment_id in range(3)]
    looks = itertools.count()

    def exact(span: Span, offset: int) -> int:
        check(next(looks) < 2 * partitions_max, "the driver looks for an event at each byte")
        return offset

    pieces = split(spans, None, 1, exact)
    assert partitions_max - 3 <= len(pieces) <= partitions_max + 3
    assert sum(piece.length for piece in pieces) == 6_000_000_000


@given(st.lists(st.integers(1, 3 * packed_bytes_min), max_size=300), st.integers(1, 10**9))
def test_packs_are_small_or_of_one_span(lengths: list[int], most_bytes: int) -> None:
    spans = [Span("s", "t", number, 0, length) for number, length in enumerate(lengths)]
    pack_bytes = pack_bytes_of(spans, most_bytes, packed_bytes_min)
    packs = pack(spans, pack_bytes)
    assert [span for some in packs for span in some] == spans
    assert all(len(some) == 1 or sum(span.length for span in some) <= pack_bytes <= most_bytes for some in packs)
    # No two neighbours would fit together.
    for first, second in itertools.pairwise(packs):
        assert sum(span.length for span in first) + second[0].length > pack_bytes


def test_many_small_ranges_make_some_dozens_of_partitions() -> None:
    spans = [Span("s", "t", number, 0, packed_bytes_min) for number in range(1000)]
    assert (
        packed_partitions_min
        <= len(pack(spans, pack_bytes_of(spans, 2**40, packed_bytes_min)))
        <= 2 * packed_partitions_min
    )
    few = [Span("s", "t", number, 0, 10 * packed_bytes_min) for number in range(4)]
    assert len(pack(few, pack_bytes_of(few, 2**40, packed_bytes_min))) == 4


def test_a_small_micro_batch_is_one_partition() -> None:
    small = [Span("s", "t", number, 0, 10_000) for number in range(6)]
    assert packs_of_batch(small, None, None, 65_536) == [tuple(small)]
    assert packs_of_batch(small, None, 30_000, 65_536) == [tuple(small[:3]), tuple(small[3:])]
    for packed in (packs_of_batch(small, None, None, 0), packs_of_batch(small, 2, None, 65_536)):
        assert packed == [(span,) for span in small]


def test_a_large_micro_batch_has_a_partition_a_segment_as_long_as_these_are_few() -> None:
    few = [Span("s", "t", number, 0, 100_000) for number in range(packed_partitions_min)]
    assert len(packs_of_batch(few, None, None, 65_536)) == len(few)
    many = [Span("s", "t", number, 0, 100_000) for number in range(1_000)]
    assert packed_partitions_min <= len(packs_of_batch(many, None, None, 65_536)) <= 2 * packed_partitions_min
    assert packs_of_batch([], None, None, 65_536) == []


def test_split_where_no_boundary_is_known() -> None:
    span = Span("s", "t", 0, 0, 1000)
    assert split([span], 10, None, lambda span, offset: span.end) == [span]


@pytest.mark.parametrize(("read", "lag"), [({0: 5}, 15), ({0: 20}, 0), ({1: 0}, 0)])
def test_lag(read: dict[int, int], lag: int) -> None:
    assert lag_bytes({"s/t": read}, {"s/t": {0: 20}, "s/u": {0: 7}}) == lag
