"""Compares cold reads through a store with a plain S3 client's ranged gets: ``python -m tests.bench.bench_cold_reads``.

A standalone writes one segment, longer than its cache, to a MinIO of its own, and is started again. The segment is read
from its beginning to its end with the reader of Spark's tasks: once with the cache empty, whose memory the system only
gives out then, and once in each round. Since the cache keeps what was read last, all of it comes from MinIO each time:
``from_minio`` says how much MinIO sent meanwhile. Beside it, the MinIO client that the store uses gets the same objects
and drops the bytes, in ranges of 1 MiB and as long as the store's, with 1, 4 and 8 in flight. The sides alternate, and
what counts is the median of their ratios. The table goes to stderr, JSON to stdout.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import urllib3
from minio import Minio

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import segment_name
from pravega_common.services.cache_size import cache_bytes_default
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.range_reader import RangeReader, ReadSockets
from pravega_streams.byte_stream.byte_stream import ByteStream
from pravega_streams.client import StreamClient
from segment_service.read_index.fetch_budget import scan_fetch_bytes_max
from tests.bench.processes import process_table
from tests.bench.tables import table
from tests.support.eventually import eventually_blocking
from tests.support.servers import MinioServer, running_minio

bucket: Final = "cold"
scope: Final = "bench"
stream: Final = "cold"
in_flight: Final = (1, 4, 8)
write_bytes: Final = 8 << 20
buffer_bytes: Final = 4 << 20
flush_time_max_s: Final = 120.0
get_sizes: Final = (1 << 20, scan_fetch_bytes_max)
from_minio_min: Final = 0.9
"""Share of a scan's bytes that must come from MinIO, or it is none of cold reads."""
aim: Final = 0.7
"""Times a plain client."""


class Stretch(NamedTuple):
    """Bytes of an object."""

    name: str
    offset: int
    length: int


class PlainClient:
    """The MinIO client, over the chunks of the segment."""

    def __init__(self, server: MinioServer) -> None:
        self._pid = server.pid
        pool = urllib3.PoolManager(maxsize=max(in_flight), retries=False)
        self._client = Minio(
            server.address, server.access_key, server.secret_key, secure=False, region="us-east-1", http_client=pool
        )

    def stretches(self, get_bytes: int = scan_fetch_bytes_max) -> list[Stretch]:
        """The ranges of the chunks of the largest segment."""
        sizes: dict[str, dict[str, int]] = {}
        for one in self._client.list_objects(bucket, recursive=True):
            name = str(one.object_name)
            if "/d/" in name:
                sizes.setdefault(name.rpartition("/")[0], {})[name] = int(one.size or 0)
        largest = max(sizes.values(), key=lambda some: sum(some.values()), default={})
        return [
            Stretch(name, offset, min(get_bytes, size - offset))
            for name, size in largest.items()
            for offset in range(0, size, get_bytes)
        ]

    def read(self, stretches: Sequence[Stretch], at_once: int) -> int:
        with ThreadPoolExecutor(at_once) as pool:
            return sum(pool.map(self._get, stretches))

    def sent_bytes(self) -> int:
        """What MinIO has written to sockets since its start; files too, of which a read makes none."""
        lines = Path(f"/proc/{self._pid}/io").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("wchar"))

    def _get(self, stretch: Stretch) -> int:
        response: Any = self._client.get_object(bucket, stretch.name, offset=stretch.offset, length=stretch.length)
        try:
            return len(response.read())
        finally:
            response.close()
            response.release_conn()


def fill(cluster: StandaloneProcess, plain: PlainClient, total: int) -> str:
    """Write the segment, at least so long, and wait until Tier 2 has it; returns its name."""
    with StreamClient(cluster.controller_uri) as client:
        client.controller.create_scope(scope)
        client.controller.create_stream(scope, stream, StreamConfiguration(ScalingPolicy.fixed(1)))
        body = random.Random(1).randbytes(write_bytes)
        with ByteStream(client, scope, stream) as file:
            for _ in range(-(-total // write_bytes)):
                file.write(body)
        name = segment_name(scope, stream, client.controller.current_segments(scope, stream)[0].segment_id)
    eventually_blocking(
        lambda: sum(stretch.length for stretch in plain.stretches()) >= total, "the last flush", flush_time_max_s
    )
    return name


def read_cold(cluster: StandaloneProcess, segment: str, total: int) -> int:
    target = memoryview(bytearray(buffer_bytes))
    count = 0
    with StreamClient(cluster.controller_uri) as client:
        sockets = ReadSockets()
        reader = RangeReader(segment, 0, total, client.segments.endpoints, sockets)
        while some := reader.read_into(target):
            count += some
        sockets.close()
    return count


def mb_per_s(read: Callable[[], int], expected: int) -> float:
    began = time.perf_counter()
    count = read()
    seconds = time.perf_counter() - began
    if count < expected:
        raise RuntimeError(f"{count} bytes were read, {expected} were written")
    return round(count / seconds / 1e6, 1)


def scan(cluster: StandaloneProcess, plain: PlainClient, segment: str, total: int) -> dict[str, float]:
    store, sent = cluster.pid("segment-store-0"), plain.sent_bytes()
    cpu_s = process_table()[store].own_s
    result = {"store": mb_per_s(lambda: read_cold(cluster, segment, total), total)}
    result["store_cpu_s_per_gb"] = round((process_table()[store].own_s - cpu_s) / total * 1e9, 2)
    result["from_minio"] = round((plain.sent_bytes() - sent) / total, 3)
    return result


def plain_key(get_bytes: int, number: int) -> str:
    return f"plain_{get_bytes >> 20}_mib_x_{number}"


def one_round(cluster: StandaloneProcess, plain: PlainClient, segment: str, total: int) -> dict[str, float]:
    result = scan(cluster, plain, segment, total)
    for get_bytes in get_sizes:
        stretches = plain.stretches(get_bytes)
        for number in in_flight:
            read = functools.partial(plain.read, stretches, number)
            result[plain_key(get_bytes, number)] = mb_per_s(read, total)
    return result


def default_mib() -> int:
    """Half as much again as the cache of the store, which follows the machine's memory."""
    return (cache_bytes_default() * 3 // 2) >> 20


def check_cold(results: Sequence[dict[str, float]]) -> None:
    """``RuntimeError`` if a scan found much of the segment in the cache."""
    least = min(one["from_minio"] for one in results)
    if least < from_minio_min:
        raise RuntimeError(f"only {least:.0%} of the bytes of a scan came from MinIO: choose a larger --mib")


def measure(folder: Path, total: int, rounds: int) -> list[dict[str, float]]:
    """The scan with an empty cache, then the rounds."""
    with running_minio(folder / "minio") as server:
        os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"] = server.access_key, server.secret_key
        url = f"http://{server.address}/{bucket}"
        cluster = StandaloneProcess(folder / "cluster", tier2="s3", tier2_url=url)
        plain = PlainClient(server)
        with cluster:
            segment = fill(cluster, plain, total)
        with cluster:
            first = scan(cluster, plain, segment, total)
            return [first, *(one_round(cluster, plain, segment, total) for _ in range(rounds))]


def summary(results: Sequence[dict[str, float]]) -> dict[str, Any]:
    first, *rounds = results
    found: dict[str, Any] = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
    keys = [key for key in found if key.startswith("plain")]
    ratios = {key: round(statistics.median(one["store"] / one[key] for one in rounds), 2) for key in keys}
    return {**found, "first": first["store"], "ratios": ratios}


def describe(found: dict[str, Any]) -> str:
    rows = [("through the store, first after its start", f"{found['first']:.0f}", "", "")]
    rows.append(("through the store", f"{found['store']:.0f}", "", ""))
    for get_bytes in get_sizes:
        for number in in_flight:
            key = plain_key(get_bytes, number)
            ratio = found["ratios"][key]
            what = f"plain client, {get_bytes >> 20} MiB a get, {number} in flight"
            rows.append((what, f"{found[key]:.0f}", f"{ratio:.2f}", "met" if ratio >= aim else "missed"))
    return table(
        f"Cold reads from MinIO; {found['store_cpu_s_per_gb']:.2f} CPU s per GB in the store, from MinIO "
        f"{found['from_minio']:.2f} of the bytes",
        ("reader", "MB/s", "store to it", f"aim {aim}"),
        rows,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=default_mib(), help="length of the segment; default %(default)s")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pravega-spark-bench-") as folder:
        results = measure(Path(folder), options.mib << 20, options.rounds)
    check_cold(results)
    found = summary(results)
    print(describe(found), file=sys.stderr)
    print(json.dumps({"mib": options.mib, "scans": results, "median": found}))


if __name__ == "__main__":
    main()
