"""Writes and reads the plan by which the optional jar reads a partition in Spark's JVM (option ``native_reader``).

The plan is a text in the pickled partition: a mark, three numbers of fixed width, and a JSON array of the spans with
their stores. The jar finds it in the pickled bytes (``NativePlan.java``). What it cannot read it leaves to Python: it
overwrites the first two numbers, the index of a span and an offset in it, and has the partition read from there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from pravega_common.invariants import check
from pravega_spark.gateway.contract import StreamGateway
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.rows.columns import SOURCE_COLUMNS
from pravega_spark.source.range_planner import Span
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.controller.address import ControllerAddress

NO_PLAN: Final = ""
_MARK: Final = "pravega-spark native plan 1 "
_SPAN_DIGITS: Final = 10
_OFFSET_DIGITS: Final = 20
_LENGTH_DIGITS: Final = 10
_COLUMNS: Final = {name: kinds[0] for name, kinds in SOURCE_COLUMNS.items() if name != "ingest_time"}
"""The columns that the jar makes, with their types; a time, as a text, needs more than the bytes of events."""


def may_be_native(options: ReadOptions, schema: pa.Schema, gateway: StreamGateway) -> bool:
    """Whether the user wants the jar to read, and it can: these columns, from a cluster without TLS and tokens."""
    if not options.native_reader or gateway.credentials is not None:
        return False
    if ControllerAddress.of(options.controller).tls is not None:
        return False
    return all(_COLUMNS.get(field.name) == field.type for field in schema)


def native_plan(spans: Sequence[Span], stores: Sequence[str]) -> str:
    """The plan of a partition; none where a store is not known, which only the controller could tell."""
    if not spans or not all(stores):
        return NO_PLAN
    text = json.dumps([_described(span, Endpoint.parse(store)) for span, store in zip(spans, stores, strict=True)])
    return f"{_MARK}{0:0{_SPAN_DIGITS}} {spans[0].start:0{_OFFSET_DIGITS}} {len(text):0{_LENGTH_DIGITS}} {text}"


def _described(span: Span, store: Endpoint) -> dict[str, str | int]:
    return {
        "segment": span.segment,
        "scope": span.scope,
        "stream": span.stream,
        "segment_id": span.segment_id,
        "start": span.start,
        "end": span.end,
        "host": store.host,
        "port": store.port,
    }


def left_to_python(spans: Sequence[Span], plan: str) -> Iterator[Span]:
    """The spans that Python reads: all of them, or what the jar has left of a partition with a plan."""
    if plan == NO_PLAN:
        yield from spans
        return
    check(plan.startswith(_MARK), "the plan of a partition begins with its mark", plan=plan[: len(_MARK)])
    index, offset = map(int, plan[len(_MARK) :].split(" ", 2)[:2])
    first, *others = spans[index:]
    check(
        first.start <= offset <= first.end,
        "the offset that Python reads from is in the span",
        offset=offset,
        span=first,
    )
    yield Span(first.scope, first.stream, first.segment_id, offset, first.end)
    yield from others
