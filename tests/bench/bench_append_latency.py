"""Measures how long one event takes to be durable, beside a raw ``XADD`` that is synced.

``python -m tests.bench.bench_append_latency [--size 1000] [--appends 1000] [--rounds 3] [--folder DIR]``. One event at
a time, each waited for: our client through a standalone of this machine, and ``XADD`` on a connection to a Redis of the
same settings whose files lie in the same folder. The sides alternate, round by round. JSON on stdout: milliseconds of
both, and the ratio of their medians.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from tests.bench.ceilings import add_entry
from tests.bench.figures import spread
from tests.support.cluster import new_stream_in, running_cluster
from tests.support.servers import running_redis

scope: Final = "bench"
unmeasured: Final = 100
"""Appends in front of each round."""


def appends_ms(append: Callable[[], None], count: int) -> list[float]:
    for _ in range(unmeasured):
        append()
    taken_ms = []
    for _ in range(count):
        started_s = time.perf_counter()
        append()
        taken_ms.append((time.perf_counter() - started_s) * 1_000)
    return taken_ms


def measure(folder: Path, size_bytes: int, count: int, rounds: int) -> dict[str, Any]:
    """Spreads in milliseconds by side; ``ratio`` is the median of the rounds' ratios of medians."""
    taken_ms: dict[str, list[float]] = {"xadd": [], "append": []}
    ratios = []
    payload = b"x" * size_bytes
    with (
        running_redis(folder / "redis") as server,
        socket.create_connection(("127.0.0.1", server.port)) as connection,
        running_cluster(folder / "standalone") as cluster,
        StreamClient(cluster.controller_uri) as client,
    ):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = connection.makefile("rb")
        client.controller.create_scope(scope)
        with EventWriter(client, scope, new_stream_in(scope, client)) as writer:

            def append() -> None:
                writer.write(payload, "key")
                writer.flush()

            for number in range(rounds):
                raw_ms = appends_ms(lambda: add_entry(connection, answers, payload), count)
                ours_ms = appends_ms(append, count)
                taken_ms["xadd"] += raw_ms
                taken_ms["append"] += ours_ms
                ratios.append(statistics.median(ours_ms) / statistics.median(raw_ms))
                print(f"round {number}: append / XADD {ratios[-1]:.2f}", file=sys.stderr)
    return {side: spread(all_ms, 2) for side, all_ms in taken_ms.items()} | {"ratio": statistics.median(ratios)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1_000, help="bytes of an event")
    parser.add_argument("--appends", type=int, default=1_000, help="of each side in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where both keep their files; a temporary one by default")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        print(json.dumps(measure(Path(folder), given.size, given.appends, given.rounds)))


if __name__ == "__main__":
    main()
