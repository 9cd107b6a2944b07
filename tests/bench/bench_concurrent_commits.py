"""Times transactions that are committed at the same time; JSON on standard output.

``python -m tests.bench.bench_concurrent_commits [--counts 1 10 100] [--streams 64] [--rounds 5] [--folder DIR]``. A
standalone of its own; each of the concurrent callers has one empty transaction. Two clocks, both from the first call:
until every caller has its answer, and until every transaction is committed. With ``--streams``, one transaction of each
of so many streams instead: all at once, and two at a time, as two serial processors of commits would take them. Not
part of the test suite.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.model.transactions import TransactionState
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.client import StreamClient

lease_ms: Final = 60_000
segments: Final = 2
poll_s: Final = 0.005


def measure(client: StreamClient, pool: ThreadPoolExecutor, count: int) -> tuple[float, float]:
    """Seconds until all calls were answered, and until all transactions were committed."""
    controller, stream = client.controller, f"s{uuid.uuid4().hex[:8]}"
    controller.create_scope("bench")
    controller.create_stream("bench", stream, StreamConfiguration(ScalingPolicy.fixed(segments)))
    ids = list(
        pool.map(lambda _: controller.create_transaction("bench", stream, lease_ms).transaction_id, range(count))
    )
    start_s = time.perf_counter()
    list(pool.map(lambda identifier: controller.commit_transaction("bench", stream, identifier), ids))
    answered_s = time.perf_counter() - start_s
    for identifier in ids:
        while controller.transaction_state("bench", stream, identifier) is not TransactionState.COMMITTED:
            time.sleep(poll_s)
    return answered_s, time.perf_counter() - start_s


def measure_streams(client: StreamClient, count: int, at_a_time: int) -> float:
    """Seconds until one transaction of each of ``count`` streams is committed, so many streams at a time."""
    controller, run = client.controller, uuid.uuid4().hex[:8]
    controller.create_scope("bench")
    names = [f"s{run}-{number}" for number in range(count)]

    def begin(stream: str) -> uuid.UUID:
        controller.create_stream("bench", stream, StreamConfiguration(ScalingPolicy.fixed(segments)))
        return controller.create_transaction("bench", stream, lease_ms).transaction_id

    def commit(stream: str, identifier: uuid.UUID) -> None:
        controller.commit_transaction("bench", stream, identifier)
        while controller.transaction_state("bench", stream, identifier) is not TransactionState.COMMITTED:
            time.sleep(poll_s)

    with ThreadPoolExecutor(16) as pool:
        ids = list(pool.map(begin, names))
    with ThreadPoolExecutor(at_a_time) as pool:
        start_s = time.perf_counter()
        list(pool.map(commit, names, ids))
        return time.perf_counter() - start_s


def run_streams(folder: Path, count: int, rounds: int) -> list[dict[str, float]]:
    figures = []
    with StandaloneProcess(folder) as standalone, StreamClient(standalone.controller_uri) as client:
        measure_streams(client, 2, 2)
        for at_a_time in (count, 2, 1):
            taken = [measure_streams(client, count, at_a_time) for _ in range(rounds)]
            figures.append(
                {
                    "streams": count,
                    "at_a_time": at_a_time,
                    "committed_ms": round(1000 * statistics.median(taken), 1),
                    "slowest_ms": round(1000 * max(taken), 1),
                }
            )
    return figures


def run(folder: Path, counts: Sequence[int], rounds: int) -> list[dict[str, float]]:
    figures = []
    with (
        StandaloneProcess(folder) as standalone,
        StreamClient(standalone.controller_uri) as client,
        ThreadPoolExecutor(max(counts)) as pool,
    ):
        measure(client, pool, 2)
        for count in counts:
            taken = [measure(client, pool, count) for _ in range(rounds)]
            figures.append(
                {
                    "transactions": count,
                    "answered_ms": round(1000 * statistics.median(answered for answered, _ in taken), 1),
                    "committed_ms": round(1000 * statistics.median(committed for _, committed in taken), 1),
                    "slowest_ms": round(1000 * max(committed for _, committed in taken), 1),
                }
            )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--streams", type=int, help="one transaction of each of so many streams, in place of --counts")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        if options.streams:
            figures = run_streams(Path(folder), options.streams, options.rounds)
        else:
            figures = run(Path(folder), options.counts, options.rounds)
        print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
