"""Lists the faults of the store drill."""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pravega_common.errors import DataCorruption, PravegaError
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import segment_name
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from tests.drills.store.load import SCOPE, STREAM, segments
from tests.drills.store.servers import DrillCluster, ServiceProcess, checkpoint_operations, lease_ms, small_disk
from tests.support.eventually import eventually_blocking
from tests.support.proxy import CuttingProxy

pause_s: Final = 2.0
"""How long a server is frozen, out of reach or full."""
zombie_pause_s: Final = 2 * lease_ms / 1000
"""How long a store is frozen: others have taken its containers over when it wakes up."""
ballast_bytes: Final = 64 * 1024
victim_events: Final = 400
victim_event_bytes: Final = 1_000
victim_markers_min: Final = victim_events - 1 - victim_events * victim_event_bytes // 65_536
"""Marks that the victim's chunks show: a checksum between two blocks of a chunk may lie in one."""
damage_time_max_s: Final = 60.0

_victims = itertools.count()
healing: Final[set[str]] = set()
"""Segments that were hurt and mended: they may be in quarantine until stores look at them again."""


@dataclass(frozen=True)
class Fault:
    """``inflict`` returns, once the cluster can recover by itself, the time from which on it hurt
    (``time.monotonic``); a wrong reaction is an ``AssertionError``."""

    name: str
    what: str
    inflict: Callable[[DrillCluster, random.Random], float]


def kill_store(cluster: DrillCluster, chooser: random.Random) -> float:
    store = _busy_store(cluster)
    store.kill()
    since_s = time.monotonic()
    store.start()
    return since_s


def stop_store(cluster: DrillCluster, chooser: random.Random) -> float:
    store = _busy_store(cluster)
    store.signal(signal.SIGSTOP)
    since_s = time.monotonic()
    time.sleep(zombie_pause_s)
    store.signal(signal.SIGCONT)
    return since_s


def _busy_store(cluster: DrillCluster) -> ServiceProcess:
    """The store that has most segments of the load's stream."""
    with StreamClient(cluster.controller_uri) as client:
        ports = [client.controller.endpoint(SCOPE, STREAM, segment).port for segment in range(segments)]
    return max(cluster.stores, key=lambda store: ports.count(store.port))


def kill_redis(cluster: DrillCluster, chooser: random.Random) -> float:
    server = chooser.choice(cluster.redis)
    server.kill()
    since_s = time.monotonic()
    server.start()
    return since_s


def stop_redis(cluster: DrillCluster, chooser: random.Random) -> float:
    server = chooser.choice(cluster.redis)
    server.pause()
    since_s = time.monotonic()
    time.sleep(pause_s)
    server.resume()
    return since_s


def partition(cluster: DrillCluster, chooser: random.Random) -> float:
    """No byte passes between the stores and one server, first of its answers only, then at all."""
    proxy = [chooser.choice(cluster.proxies)]

    def swallow(one: CuttingProxy) -> None:
        one.swallow_answers = True

    def cut(one: CuttingProxy) -> None:
        one.swallow_answers, one.refuse = False, True
        one.cut()

    def heal(one: CuttingProxy) -> None:
        one.refuse = False

    cluster.on_proxies(swallow, proxy)
    since_s = time.monotonic()
    time.sleep(pause_s / 2)
    cluster.on_proxies(cut, proxy)
    time.sleep(pause_s / 2)
    cluster.on_proxies(heal, proxy)
    return since_s


def full_redis(cluster: DrillCluster, chooser: random.Random) -> float:
    server = chooser.choice(cluster.redis)
    server.call("CONFIG", "SET", "maxmemory", "1mb")
    since_s = time.monotonic()
    time.sleep(pause_s)
    server.call("CONFIG", "SET", "maxmemory", "0")
    return since_s


def full_disk(cluster: DrillCluster, chooser: random.Random) -> float:
    """Fill the disk of a Redis, which ends it, and free it again; a Redis without memory where no disk can be made."""
    server = chooser.choice(cluster.redis)
    with small_disk(server) as disk:
        if disk is None:
            return full_redis(cluster, chooser)
        ballast = disk / "ballast"
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(ballast_bytes)):
                pass
        eventually_blocking(lambda: server.is_dead, "the end of a Redis with a full disk", damage_time_max_s)
        since_s = time.monotonic()
        ballast.unlink()
        server.restart_after_kill()
    return since_s


def power_cut(cluster: DrillCluster, chooser: random.Random) -> float:
    """The machine of all stores and servers loses its power: what no server synced is gone."""
    for server in {*cluster.redis, cluster.cpo}:
        server.cut_power()
    for store in cluster.stores:
        store.kill()
    since_s = time.monotonic()
    for server in {*cluster.redis, cluster.cpo}:
        server.start()
    for store in cluster.stores:
        store.start()
    return since_s


def corrupt_chunk(cluster: DrillCluster, chooser: random.Random) -> float:
    def flip(chunk: Path) -> None:
        content = bytearray(chunk.read_bytes())
        content[chooser.randrange(len(content) // 4, len(content) // 2)] ^= 1 << chooser.randrange(8)
        chunk.write_bytes(content)

    return _damage(cluster, flip)


def remove_chunk(cluster: DrillCluster, chooser: random.Random) -> float:
    return _damage(cluster, lambda chunk: chunk.unlink())


def _damage(cluster: DrillCluster, hurt: Callable[[Path], None]) -> float:
    """Hurt the chunk of one segment: its reads fail and name it, no other segment is affected, and once the chunk is
    back so are its bytes."""
    begun_s = time.time()
    stream = f"victim-{next(_victims)}"
    marker = f"{stream}-{random.randbytes(8).hex()}".encode()
    events = [marker.ljust(victim_event_bytes, b".")] * victim_events
    with StreamClient(cluster.controller_uri) as client:
        client.controller.create_stream(SCOPE, stream, StreamConfiguration(ScalingPolicy.fixed(1)))
    _write(cluster, stream, events)
    eventually_blocking(
        lambda: sum(_chunks_with(cluster, marker, begun_s).values()) >= victim_markers_min,
        "the victim in Tier 2",
        damage_time_max_s,
    )
    _let_truncate(cluster, stream, events)
    chunk = next(iter(_chunks_with(cluster, marker, begun_s)))
    copy = cluster.folder / "copy"
    shutil.copy(chunk, copy)
    hurt(chunk)
    since_s = time.monotonic()
    _restart_stores(cluster)
    eventually_blocking(lambda: _is_refused(cluster, stream), "a refused read of the victim", damage_time_max_s)
    name = segment_name(SCOPE, stream, 0)
    damaged = {segment.removesuffix("#index") for segment in cluster.damaged_segments()}
    assert damaged - healing == {name}, f"{damaged} are called damaged, {name} is"
    healing.add(name)
    shutil.copy(copy, chunk)
    eventually_blocking(lambda: _read(cluster, stream) == events, "the victim healed", damage_time_max_s)
    return since_s


def _let_truncate(cluster: DrillCluster, stream: str, events: list[bytes]) -> None:
    """Write until the log of the victim's container has had checkpoints, so that no recovery finds the victim there."""
    for _ in range(2):
        fillers = [b"filler"] * (2 * checkpoint_operations)
        _write(cluster, stream, fillers, flush_each=True)
        events += fillers
        time.sleep(1.0)  # Tier 2 is written and Tier 1 truncated in the background


def _restart_stores(cluster: DrillCluster) -> None:
    """What stores have in memory would hide the damage."""
    for store in cluster.stores:
        store.kill()
    for store in cluster.stores:
        store.start()
    for store in cluster.stores:
        store.wait_open()


def _write(cluster: DrillCluster, stream: str, events: list[bytes], *, flush_each: bool = False) -> None:
    with StreamClient(cluster.controller_uri) as client, EventWriter(client, SCOPE, stream) as writer:
        for event in events:
            writer.write(event, "k")
            if flush_each:
                writer.flush()


def _chunks_with(cluster: DrillCluster, marker: bytes, since_s: float) -> dict[Path, int]:
    """Chunks written since then that hold the marker, and how often they do."""
    found: dict[Path, int] = {}
    for path in sorted(cluster.tier2.glob("c*/d/*/*")):
        with contextlib.suppress(FileNotFoundError):  # compaction and truncation go on meanwhile
            if path.stat().st_mtime >= since_s and (count := path.read_bytes().count(marker)):
                found[path] = count
    return found


def _read(cluster: DrillCluster, stream: str) -> list[bytes] | PravegaError:
    try:
        with StreamClient(cluster.controller_uri) as client:
            return [event.data for event in read_events(client, SCOPE, stream)]
    except PravegaError as error:
        return error


def _is_refused(cluster: DrillCluster, stream: str) -> bool:
    """Whether the damage is what a reader is answered; until the containers are back it is something else."""
    answer = _read(cluster, stream)
    if isinstance(answer, PravegaError):
        return isinstance(answer, DataCorruption)
    raise AssertionError(f"{len(answer)} events of a damaged segment were served without an error")


FAULTS: Final = {
    fault.name: fault
    for fault in (
        Fault("kill-store", "SIGKILL of a store, started again at once", kill_store),
        Fault("stop-store", "SIGSTOP of a store past its lease: a zombie wakes up", stop_store),
        Fault("kill-redis", "SIGKILL of a Redis, started again at once", kill_redis),
        Fault("stop-redis", "SIGSTOP of a Redis", stop_redis),
        Fault("partition", "stores and a Redis apart: answers lost, then connections refused", partition),
        Fault("full-redis", "a Redis without memory", full_redis),
        Fault("full-disk", "a Redis whose disk is full ends; started again when there is room", full_disk),
        Fault("corrupt-chunk", "a flipped bit in Tier 2: one segment refuses, no other", corrupt_chunk),
        Fault("remove-chunk", "a file of Tier 2 gone: one segment refuses, no other", remove_chunk),
        Fault("power-cut", "SIGKILL of all, files of the Redis cut to what was synced", power_cut),
    )
}
