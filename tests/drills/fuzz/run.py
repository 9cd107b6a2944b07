"""Carries a fuzzing run out: peers in processes of their own against one standalone, and the checks after it."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.credentials import BasicCredentials
from tests.drills.fuzz import world
from tests.drills.fuzz.cores import CoreShares, on_cores
from tests.drills.fuzz.frames import FrameMaker
from tests.drills.fuzz.grpc_peer import GrpcPeer
from tests.drills.fuzz.rest_peer import RestPeer
from tests.drills.fuzz.values import Target
from tests.drills.fuzz.watch import GoodClient, ProcessWatch, unforeseen_in_logs
from tests.drills.fuzz.wire_peer import PeerCounts, WirePeer
from tests.drills.store.main import percentile
from tests.support.security_cluster import PASSWORD, authenticating_cluster

part_frames: Final = 20_000
"""Frames that a peer sends with one set of tokens; then it asks for new ones, as they end."""
part_requests: Final = 4_000
peers_together: Final = 6
"""Processes of an attack: a user's and a stranger's, for frames, gRPC and REST."""
slower_factor_max: Final = 2.0
"""How much slower than in the quiet a good client's p99 is to be."""
SETTINGS: Final = {
    "PRAVEGA_SEGMENT_STORE_CACHE__BYTES_MAX": str(128 * 1024 * 1024),
    "PRAVEGA_SEGMENT_STORE_STORE__UNFLUSHED_BYTES_MAX": str(64 * 1024 * 1024),
}
"""Small caches: what grows beyond them is found sooner."""
SHARES: Final = (
    "PRAVEGA_SEGMENT_STORE_STORE__REFUSALS_PER_PEER_PER_S",
    "PRAVEGA_CONTROLLER_CONTROLLER__REFUSALS_PER_PEER_PER_S",
)
"""The settings of what may be refused of a host, by which most of what peers send waits."""


@dataclass
class FuzzResult:
    """One run. ``problems``: what must not be, each in a sentence."""

    seed: int
    cores_apart: bool = False
    """Whether the peers had cores of their own."""
    frames: dict[str, PeerCounts] = field(default_factory=dict)
    grpc: dict[str, PeerCounts] = field(default_factory=dict)
    rest: dict[str, PeerCounts] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    memory_before: dict[str, int] = field(default_factory=dict)
    memory_most: dict[str, int] = field(default_factory=dict)
    quiet_s: list[float] = field(default_factory=list)
    burdened_s: list[float] = field(default_factory=list)
    """While the peers are as busy as under attack, and send nothing."""
    attacked_s: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        return not self.problems

    @property
    def slower(self) -> float:
        """The good client's p99 under attack, as a multiple of that in the quiet."""
        return percentile(self.attacked_s, 0.99) / percentile(self.quiet_s, 0.99)

    @property
    def slower_than_burdened(self) -> float:
        """The same, as a multiple of that beside peers that send nothing: the part that is not the machine's."""
        return percentile(self.attacked_s, 0.99) / percentile(self.burdened_s, 0.99)


@dataclass(frozen=True)
class _Part:
    """The work of one peer in one process, over one interface."""

    interface: str
    seed: str
    address: str
    target: Target
    header: str
    count: int


def _run_part(part: _Part) -> PeerCounts:
    """Runs in a process of its own, behind all others: peers must not take the processor time of what they attack."""
    os.nice(19 - os.nice(0))
    _, _, port = part.address.rpartition(":")
    if part.interface == "frames":
        return asyncio.run(WirePeer(part.seed, int(port), part.target).run(part.count))
    peer = GrpcPeer if part.interface == "grpc" else RestPeer
    return asyncio.run(peer(part.seed, part.address, part.target, part.header).run(part.count))


def _make_frames(seed: str, target: Target, seconds: float) -> None:
    """Runs in a process of its own: makes what a peer would send, and sends nothing."""
    os.nice(19 - os.nice(0))
    maker = FrameMaker(seed, target)
    ends_s = time.monotonic() + seconds
    while time.monotonic() < ends_s:
        maker.batch()


def _burden(uri: str, seconds: float) -> None:
    """Take the processor time of an attack, without one."""
    target = world.target(uri, None)
    with ProcessPoolExecutor(peers_together, mp_context=multiprocessing.get_context("spawn")) as pool:
        wait([pool.submit(_make_frames, f"burden-{number}", target, seconds) for number in range(peers_together)])


def run(
    folder: Path,
    frames: int,
    requests: int,
    seed: int,
    quiet_s: float,
    tell: Callable[[str], None],
    refusals_per_s: int = 0,
) -> FuzzResult:
    """Send so many mutated frames and requests, half of them with a user's credentials, and half without any.

    ``refusals_per_s``: what a store and a controller may each refuse of a host, instead of what they refuse else, so
    that a large run ends sooner; 0 leaves it.
    """
    cores = CoreShares.of_this_process()
    result = FuzzResult(seed, cores_apart=cores.are_apart)
    shares = dict.fromkeys(SHARES, str(refusals_per_s)) if refusals_per_s else {}
    cluster_of_users = authenticating_cluster(folder, world.USERS, SETTINGS | shares)
    with on_cores(cores.services), cluster_of_users as cluster:
        uri = cluster.controller_uri
        world.make(uri)
        before = world.fingerprint(uri)
        client, watch = GoodClient(uri), ProcessWatch(cluster)
        watch.start()
        client.start()
        begun_s = time.monotonic()
        time.sleep(quiet_s)
        quiet_until_s = time.monotonic()
        with on_cores(cores.peers):
            _burden(uri, quiet_s)
            burdened_until_s = time.monotonic()
            _attack(cluster, result, frames, requests, tell)
        ended_s = time.monotonic()
        result.seconds = ended_s - burdened_until_s
        client.end()
        watch.end()
        result.quiet_s = client.between(begun_s, quiet_until_s)
        result.burdened_s = client.between(quiet_until_s, burdened_until_s)
        result.attacked_s = client.between(burdened_until_s, ended_s)
        result.memory_before, result.memory_most = watch.before, watch.most
        result.problems += [f"the good client: {error}" for error in client.errors]
        result.problems += watch.problems() + _stalled(result) + unforeseen_in_logs(cluster)
        result.problems += changes(before, world.fingerprint(uri))
    return result


def _attack(
    cluster: StandaloneProcess, result: FuzzResult, frames: int, requests: int, tell: Callable[[str], None]
) -> None:
    ready = cluster.ready()
    addresses = {"frames": ready["segment_stores"][0], "grpc": ready["controller"], "rest": ready["rest"]}
    shares = {"frames": frames // 2, "grpc": requests // 4, "rest": requests // 4}
    counts = {"frames": result.frames, "grpc": result.grpc, "rest": result.rest}
    left = {(user, interface): share for interface, share in shares.items() for user in (None, world.PEER)}

    def next_part(line: tuple[str | None, str]) -> _Part:
        user, interface = line
        if line == (world.PEER, "frames"):
            world.renew(cluster.controller_uri)
        count = min(left[line], part_frames if interface == "frames" else part_requests)
        left[line] -= count
        header = "" if user is None else BasicCredentials(user, PASSWORD).header()
        target = world.target(cluster.controller_uri, user)
        return _Part(interface, f"{result.seed}-{user}-{left[line]}", addresses[interface], target, header, count)

    running: dict[tuple[str | None, str], Future[PeerCounts]] = {}
    with ProcessPoolExecutor(len(left), mp_context=multiprocessing.get_context("spawn")) as pool:
        while any(left.values()) or running:
            running |= {
                line: pool.submit(_run_part, next_part(line)) for line in left if left[line] and line not in running
            }
            done, _ = wait(running.values(), return_when=FIRST_COMPLETED)
            for line in [line for line, future in running.items() if future in done]:
                user, interface = line
                counts[interface].setdefault(user or "anonymous", PeerCounts()).add(running.pop(line).result())
                tell(f"{interface} of {user or 'anonymous'}: {left[line]} still to begin")


def _stalled(result: FuzzResult) -> list[str]:
    return [
        f"{name}: {counts.stalled} waits of the {peer} peer ended without an answer"
        for name, peers in (("frames", result.frames), ("gRPC", result.grpc), ("REST", result.rest))
        for peer, counts in peers.items()
        if counts.stalled
    ]


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The parts of two fingerprints that differ, a sentence each."""
    names = sorted(before.keys() | after.keys())
    return [
        f"{name} changed: {before.get(name, 'nothing')[:300]} became {after.get(name, 'nothing')[:300]}"
        for name in names
        if before.get(name) != after.get(name)
    ]
