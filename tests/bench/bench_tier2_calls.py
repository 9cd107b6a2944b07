"""Measures what a steady load asks of Tier 2: ``python -m tests.bench.bench_tier2_calls``.

An object store has its price for each put and get, whatever it brings. For each load, events of 500 bytes to some
segments on a standalone of its own with default settings, there is one JSON object: puts, gets and deletions a second,
bytes put for each byte written, and the share of a core that the store takes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Final

from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams import StreamManager
from tests.bench.processes import process_table
from tests.support.pages import store_samples

event_bytes: Final = 500
period_s: Final = 0.1
"""Pause between the flushes of the writer."""
CALLS: Final = "pravega_store_tier2_call_seconds_count"
PUT_BYTES: Final = "pravega_store_tier2_put_bytes_total"


def counts_of(cluster: StandaloneProcess) -> dict[str, float]:
    """Calls of each kind, ``bytes`` put, and seconds of ``cpu``, since the store began."""
    samples = store_samples(cluster)
    counts = {sample.labels["call"]: sample.value for sample in samples if sample.name == CALLS}
    cpu_s = process_table()[cluster.pid("segment-store-0")].own_s
    return counts | {"bytes": sum(sample.value for sample in samples if sample.name == PUT_BYTES), "cpu": cpu_s}


def write(cluster: StandaloneProcess, segments: int, events_per_s: int, seconds: float) -> int:
    """Write at a steady pace, each event to the next of the keys; returns the bytes."""
    scope, stream = "tier2-calls", f"of-{segments}-{events_per_s}"
    written = 0
    with StreamManager(cluster.controller_uri) as manager:
        manager.create_scope(scope)
        manager.create_stream(scope, stream, segments)
        with manager.create_writer(scope, stream) as writer:
            begin_s = time.monotonic()
            while (passed_s := time.monotonic() - begin_s) < seconds:
                while written < passed_s * events_per_s:
                    writer.write(bytes(event_bytes), f"key-{written % (4 * segments)}")
                    written += 1
                writer.flush()
                time.sleep(period_s)
    return written * event_bytes


def measure(segments: int, events_per_s: int, seconds: float) -> dict[str, float]:
    with (
        tempfile.TemporaryDirectory(prefix="pravega-tier2-calls-") as folder,
        StandaloneProcess(Path(folder)) as cluster,
    ):
        before = counts_of(cluster)
        size = write(cluster, segments, events_per_s, seconds)
        after = counts_of(cluster)
    grown = {name: after[name] - before[name] for name in after}
    return {
        "segments": segments,
        "kb_a_second": round(size / seconds / 1e3),
        "puts_a_second": round(grown["put"] / seconds, 2),
        "gets_a_second": round(grown["get"] / seconds, 2),
        "deletions_a_second": round(grown["delete"] / seconds, 2),
        "put_bytes_per_byte": round(grown["bytes"] / size, 2),
        "store_core_percent": round(100 * grown["cpu"] / seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loads", nargs="+", default=["4:80", "40:80", "1000:200", "4:10000"], metavar="SEGMENTS:RATE")
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    for load in args.loads:
        segments, rate = map(int, load.split(":"))
        print(json.dumps(measure(segments, rate, args.seconds)), flush=True)


if __name__ == "__main__":
    main()
