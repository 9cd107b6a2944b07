"""The format of index records, and the search over pages of them."""

from __future__ import annotations

import random

import pytest

from pravega_common.errors import DataCorruption
from pravega_common.event_index import (
    EVENT_COUNT,
    LENGTH,
    TIME_MS,
    IndexRecord,
    RecordPage,
    RecordSearch,
    encode_records,
    page_range,
    page_records,
)


def test_a_record_is_three_big_endian_numbers() -> None:
    assert encode_records([IndexRecord(0x0102, 3, 1_700_000_000_000)]).hex() == (
        "0000000000000102" + "0000000000000003" + "0000018bcfe56800"
    )


def test_a_page_gives_back_its_records() -> None:
    records = [IndexRecord(10, 1, 100), IndexRecord(20, 2, 100), IndexRecord(1 << 62, 1 << 61, 1 << 60)]
    page = RecordPage(5, memoryview(encode_records(records)))
    assert [page.record(number) for number in range(5, 8)] == records
    assert page.end == 8
    assert [page.first_at_least(LENGTH, value) for value in (0, 10, 11, 1 << 62, (1 << 62) + 1)] == [5, 5, 6, 7, 8]
    assert page.first_at_least(TIME_MS, 101) == 7


def test_records_in_the_wrong_order_are_smoothed() -> None:
    page = RecordPage(0, encode_records([IndexRecord(30, 3, 9), IndexRecord(20, 2, 8), IndexRecord(40, 4, 7)]))
    assert [page.record(number) for number in range(3)] == [(30, 3, 9), (30, 3, 9), (40, 4, 9)]


def test_half_a_record_is_no_index() -> None:
    with pytest.raises(DataCorruption, match="25 bytes"):
        RecordPage(0, bytes(25))


def made(rng: random.Random, count: int) -> list[IndexRecord]:
    """Rising lengths; counts and times that sometimes stay."""
    records, last = [], IndexRecord(0, 0, 1_000)
    for _ in range(count):
        last = IndexRecord(
            last.length + rng.randint(1, 100), last.event_count + rng.randrange(4), last.time_ms + rng.randrange(3)
        )
        records.append(last)
    return records


@pytest.mark.parametrize("seed", range(200))
def test_search_finds_what_a_scan_finds(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.choice((0, 1, 2, 7, page_records - 1, page_records, page_records + 1, 5 * page_records + 3))
    records = made(rng, count)
    first = rng.choice((0, rng.randrange(count + 1)))
    column = rng.choice((LENGTH, EVENT_COUNT, TIME_MS))
    value = rng.choice((0, 1, rng.choice(records)[column], records[-1][column] + 1)) if records else 7
    search, pages = RecordSearch(first, count, column, value), 0
    while (wanted := search.wanted) is not None:
        begin, end = page_range(wanted, first, count)
        search.feed(RecordPage(begin, encode_records(records[begin:end])))
        pages += 1
    assert search.found == next((at for at in range(first, count) if records[at][column] >= value), count)
    assert pages <= (count // page_records + 1).bit_length() + 1


def test_a_search_takes_pages_that_know_more() -> None:
    """A page may have been read when the index began earlier, or was shorter or longer than now."""
    records = made(random.Random(1), 100)
    search = RecordSearch(40, 60, LENGTH, records[50].length)
    assert search.wanted == 0
    search.feed(RecordPage(0, encode_records(records)))
    assert search.wanted is None and search.found == 50
