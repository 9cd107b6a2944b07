"""Inflicts the faults that need data or files of their own: damage in Tier 2, a lost transaction, a certificate."""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pravega_common.errors import DataCorruption, PravegaError
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import segment_name, transaction_segment_name
from pravega_common.runtime.clock import SystemClock
from pravega_common.services.security.settings import SecuritySection
from pravega_common.wire import commands as wire
from pravega_spark.standalone.certificates import certificate_days, service_certificate
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.connection.blocking import WireSocket
from pravega_streams.event.event_writer import EventWriter
from pravega_streams.event.transaction import TransactionalWriter
from tests.drills.faults.cluster import FaultCluster, checkpoint_operations
from tests.drills.store.load import SCOPE
from tests.support.eventually import eventually_blocking

step_time_max_s: Final = 120.0
victim_events: Final = 400
victim_event_bytes: Final = 1_000
markers_min: Final = victim_events // 2
"""Marks that one object of the victim shows: checksums lie between."""
attempts_max: Final = 5
settle_s: Final = 3.0
"""Time for Tier 2 to be written and Tier 1 truncated in the background."""
certificate_left: Final = timedelta(days=3)
_numbers: Final = itertools.count()


@contextmanager
def damaged_segment(cluster: FaultCluster, begins: Callable[[], None]) -> Iterator[None]:
    """Take an object of one segment out of Tier 2 and read the segment, once no store has its bytes elsewhere."""
    stream = f"victim-{next(_numbers)}"
    marker = f"{stream}-{random.randbytes(8).hex()}".encode()
    with StreamClient(cluster.standalone.controller_uri) as client:
        client.controller.create_stream(SCOPE, stream, StreamConfiguration(ScalingPolicy.fixed(1)))
    _write(cluster, stream, [marker.ljust(victim_event_bytes, b".")] * victim_events)
    for _ in range(attempts_max):
        _write(cluster, stream, [b"filler"] * (2 * checkpoint_operations), flush_each=True)
        time.sleep(settle_s)
        away = _taken_away(cluster, marker)
        cluster.restart("segment-store-0", "segment-store-1")
        eventually_blocking(cluster.serves, "stores that serve", step_time_max_s)
        begins()
        if _is_refused(cluster, stream):
            break
        _put_back(away)  # Tier 1 had the bytes as well
    else:
        raise AssertionError(f"{stream} was read without its object in Tier 2, {attempts_max} times")
    yield
    _put_back(away)
    eventually_blocking(lambda: _read(cluster, stream) is None, "the victim healed", step_time_max_s)


def _taken_away(cluster: FaultCluster, marker: bytes) -> dict[Path, Path]:
    """The places of the objects that have most of the marks, and where they were moved to."""
    found: list[Path] = []

    def is_there() -> bool:
        found[:] = _objects_with(cluster, marker)
        return bool(found)

    eventually_blocking(is_there, "the victim in Tier 2", step_time_max_s)
    moved = {place: cluster.data / f"away-{next(_numbers)}" for place in found}
    for place, other in moved.items():
        shutil.move(place, other)
    return moved


def _put_back(moved: dict[Path, Path]) -> None:
    for place, other in moved.items():
        shutil.move(other, place)


def _write(cluster: FaultCluster, stream: str, events: list[bytes], *, flush_each: bool = False) -> None:
    with StreamClient(cluster.standalone.controller_uri) as client, EventWriter(client, SCOPE, stream) as writer:
        for event in events:
            writer.write(event, "k")
            if flush_each:
                writer.flush()


def _objects_with(cluster: FaultCluster, marker: bytes) -> list[Path]:
    """Objects that hold most of the marks: files, or the folders in which MinIO keeps them."""
    root = cluster.data / ("minio/data/pravega-spark" if cluster.tier2 == "minio" else "tier2")
    found = []
    for path in sorted(root.rglob("*")):
        with contextlib.suppress(OSError):  # compaction goes on meanwhile, and folders have no bytes
            if path.read_bytes().count(marker) >= markers_min:
                found.append(path)
    return [_object_of(path) for path in found]


def _object_of(path: Path) -> Path:
    """The folder of an object of MinIO, whose bytes are in ``xl.meta`` or in ``*/part.1``."""
    if path.name == "xl.meta":
        return path.parent
    return path.parent.parent if path.name == "part.1" else path


def _read(cluster: FaultCluster, stream: str) -> PravegaError | None:
    try:
        with StreamClient(cluster.standalone.controller_uri) as client:
            for _ in read_events(client, SCOPE, stream):
                pass
    except PravegaError as error:
        return error
    return None


def _is_refused(cluster: FaultCluster, stream: str) -> bool:
    """Whether a read says that the data is damaged; other errors pass once the containers are back."""
    found: list[PravegaError | None] = []

    def is_decided() -> bool:
        found[:] = [_read(cluster, stream)]
        return found[0] is None or isinstance(found[0], DataCorruption)

    eventually_blocking(is_decided, "an answer about the victim", step_time_max_s)
    return found[0] is not None


@contextmanager
def blocked_commit(cluster: FaultCluster, begins: Callable[[], None]) -> Iterator[None]:
    """Commit a transaction whose segment is gone; afterwards an operator gives it up."""
    stream = f"blocked-{next(_numbers)}"
    with StreamClient(cluster.standalone.controller_uri) as client:
        client.controller.create_stream(SCOPE, stream, StreamConfiguration(ScalingPolicy.fixed(1)))
        transaction = TransactionalWriter(client, SCOPE, stream).begin()
        transaction.write(b"lost", "k")
        transaction.flush()
        parent = segment_name(SCOPE, stream, 0)
        _delete(cluster, client, stream, transaction_segment_name(parent, transaction.transaction_id))
        begins()
        transaction.commit(wait=False)
        yield
        client.operations.give_up(SCOPE, stream, transaction.transaction_id)


def _delete(cluster: FaultCluster, client: StreamClient, stream: str, segment: str) -> None:
    """Delete a segment as the controllers do, with the key of the cluster."""
    section = SecuritySection(cluster_key_file=str(cluster.data / "cluster.keys"))
    tokens = section.tokens(SystemClock(), "drill")
    assert tokens is not None
    token = tokens.internal()
    connection = WireSocket(client.controller.endpoint(SCOPE, stream, 0))
    try:
        reply = connection.call(lambda request_id: wire.DeleteSegment(request_id, segment, token))
        assert isinstance(reply, wire.SegmentDeleted), reply
    finally:
        connection.close()


@contextmanager
def ending_certificate(cluster: FaultCluster, begins: Callable[[], None]) -> Iterator[None]:
    """Put a certificate of the same authority that ends soon in the place of the services' own."""
    issued = datetime.now(UTC) - timedelta(days=certificate_days) + certificate_left
    with _replaced(cluster, begins, issued, ("server-key.pem", "server.pem")):
        yield


@contextmanager
def refused_certificate(cluster: FaultCluster, begins: Callable[[], None]) -> Iterator[None]:
    """Put a key that does not match in the place of the services' own."""
    with _replaced(cluster, begins, datetime.now(UTC), ("server-key.pem",)):
        yield


@contextmanager
def _replaced(
    cluster: FaultCluster, begins: Callable[[], None], issued: datetime, replaced: Sequence[str]
) -> Iterator[None]:
    """Replace files of the services by those of another certificate of their authority."""
    number = next(_numbers)
    folder, other, kept = (cluster.data / f"tls{end}" for end in ("", f"-other-{number}", f"-kept-{number}"))
    shutil.copytree(folder, kept)
    shutil.copytree(folder, other)
    for name in ("server-key.pem", "server.pem"):
        (other / name).unlink()
    service_certificate(other, "127.0.0.1", issued)
    begins()
    for name in replaced:
        shutil.copy(other / name, folder / name)
    yield
    for name in replaced:
        shutil.copy(kept / name, folder / name)
