"""Compares the content of a stream after a run with what should be in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from pravega_spark.gateway.service import ServiceGateway
from pravega_spark.source.partition_reader import read_span
from pravega_spark.source.range_planner import Span
from tests.drills.sink import records

_schema = pa.schema([("event", pa.string())])


@dataclass(frozen=True)
class Tally:
    """``out_of_order``: events that stand behind a greater one of their key, repetitions left out."""

    events: int = 0
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    phantom: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.events + other.events,
            self.lost + other.lost,
            self.duplicated + other.duplicated,
            self.out_of_order + other.out_of_order,
            self.phantom + other.phantom,
        )

    @property
    def exact(self) -> bool:
        return not (self.lost or self.duplicated or self.out_of_order or self.phantom)


def numbers_in(
    gateway: ServiceGateway, controller: str, scope: str, stream: str, *, as_records: bool = False
) -> list[int]:
    """All events or records, segment by segment, in their order within each: a key lives in one segment here."""
    schema = records.SCHEMA if as_records else _schema
    tail = gateway.tail_cut(scope, stream)
    found: list[int] = []
    for segment_id, end in sorted(tail.items()):
        if not end:
            continue
        for batch in read_span(Span(scope, stream, segment_id, 0, end), schema, controller, fail_on_data_loss=True):
            texts = batch.column(0).to_pylist()
            found += records.numbers_of(batch.to_pylist()) if as_records else [int(text) for text in texts]
    return found


def tally(found: Sequence[int], expected: Sequence[int]) -> Tally:
    """``expected`` may hold a number more than once."""
    wanted, present = Counter(expected), Counter(found)
    last: dict[int, int] = {}
    seen: set[int] = set()
    out_of_order = 0
    for number in found:
        if number in seen or not wanted[number]:
            continue
        seen.add(number)
        key = number % records.keys
        out_of_order += last.get(key, -1) > number
        last[key] = max(last.get(key, -1), number)
    return Tally(
        events=len(found),
        lost=(wanted - present).total(),
        duplicated=sum(count - wanted[number] for number, count in present.items() if 0 < wanted[number] < count),
        out_of_order=out_of_order,
        phantom=sum(count for number, count in present.items() if not wanted[number]),
    )
