"""Measures events a second through framing, routing and parsing on one core: ``python -m tests.bench.bench_framing``.

Prints one JSON object per event size. Best of several rounds, since the machine is shared.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from pravega_common.model.segments import SegmentRange
from pravega_spark.rows.columns import RowBuilder
from pravega_spark.rows.framing import EventWindow, blocks_by_segment, event_lengths
from pravega_spark.sink.routing import RowRouter

batch_rows = 10_000
window_bytes = 4 * 1024 * 1024
rounds = 15


def best_s(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return min(taken)


def events_of(size: int, varied: bool) -> pa.Array:
    generator = np.random.default_rng(7)
    spread = size // 3 if varied else 0
    lengths = generator.integers(size - spread, size + spread + 1, batch_rows)
    return pa.array([generator.bytes(int(length)) for length in lengths], pa.binary())


def router(segments: int) -> RowRouter:
    width = 1 / segments
    return RowRouter(
        [SegmentRange("s", "t", index, index * width, (index + 1) * width) for index in range(segments)], 0
    )


def frame(events: pa.Array, keys: pa.Array | None, segments: int) -> Callable[[], object]:
    made = router(segments)

    def work() -> object:
        lengths = event_lengths(events)
        indexes = made.indexes(made.key_positions(keys, lengths)) if segments > 1 else None
        return list(blocks_by_segment(events, lengths, indexes))

    return work


def parse(events: pa.Array, schema: pa.Schema) -> tuple[Callable[[], object], int]:
    block = b"".join(bytes(block.data) for block in blocks_by_segment(events, event_lengths(events), None))
    copies = max(1, window_bytes // len(block))
    data = block * copies
    rows = RowBuilder(schema, "scope", "stream", 7)
    window = EventWindow(0, len(data))

    def work() -> object:
        window.free()[: len(data)] = data
        window.filled(len(data))
        index = window.index()
        offset = window.offset
        made = rows.build(
            lambda: window.events(index), lambda: index.starts.astype(np.int64) + offset, len(index.starts)
        )
        window.consume(index)
        return made

    return work, batch_rows * copies


FULL = pa.schema(
    [
        ("event", pa.binary()),
        ("scope", pa.string()),
        ("stream", pa.string()),
        ("segment_id", pa.int64()),
        ("offset", pa.int64()),
    ]
)
EVENT_ONLY = pa.schema([("event", pa.binary())])


def main() -> None:
    few = pa.array([f"key-{index % 100}" for index in range(batch_rows)])
    distinct = pa.array([f"user/{index:012}" for index in range(batch_rows)])
    for size in (100, 1_000, 10_000):
        for varied in (False, True):
            events = events_of(size, varied)
            result: dict[str, float | str] = {"event_bytes": size, "lengths": "varied" if varied else "equal"}
            cases = {
                "frame_1_segment": frame(events, None, 1),
                "frame_4_segments_no_key": frame(events, None, 4),
                "frame_4_segments_100_keys": frame(events, few, 4),
                "frame_4_segments_distinct_keys": frame(events, distinct, 4),
            }
            for name, work in cases.items():
                result[f"{name}_million_events_s"] = round(batch_rows / best_s(work) / 1e6, 2)
            for name, schema in (("all_columns", FULL), ("event_only", EVENT_ONLY)):
                work, count = parse(events, schema)
                result[f"parse_{name}_million_events_s"] = round(count / best_s(work) / 1e6, 2)
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
