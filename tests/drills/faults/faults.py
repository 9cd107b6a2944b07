"""Lists the faults of the drill, with what each must be told by."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import Final

from tests.drills.faults.cluster import FaultCluster
from tests.drills.faults.data_faults import blocked_commit, damaged_segment, ending_certificate, refused_certificate
from tests.drills.faults.watch import NO_ANSWER

STORE, CONTROLLER, REDIS, MINIO = "segment-store-0", "controller-1", "redis", "minio"
slow_stopped_s: Final = 3.0
slow_running_s: Final = 0.2
"""A slow Tier 2 is stopped and let run in turn."""
hold_max_s: Final = 60.0
small_memory: Final = "1mb"
clock_ahead_s: Final = 86_400

Begins = Callable[[], None]
"""Called just before it hurts: seconds are counted from there."""
Inflict = Callable[[FaultCluster, Begins], AbstractContextManager[None]]


@dataclass(frozen=True)
class Fault:
    """``inflict`` hurts on entry and mends on exit. The words of ``told`` are joined by ``|``: one is enough."""

    name: str
    what: str
    inflict: Inflict
    metric: str
    """An expression that holds for the metrics while the fault lasts."""
    told: Mapping[str, str]
    hold_s: float = hold_max_s
    """How long it lasts, unless everybody has told sooner."""
    kind: str = "one"
    """Of the cluster."""
    mends_itself: bool = False
    whole: bool = False
    """Whether it lasts for ``hold_s`` even if everybody has told sooner."""
    tier2: str = ""
    """The only Tier 2 with which it can be inflicted; empty for any."""


def stopped(*names: str) -> Inflict:
    @contextmanager
    def inflict(cluster: FaultCluster, begins: Begins) -> Iterator[None]:
        begins()
        for name in names:
            cluster.signal(name, signal.SIGSTOP)
        yield
        for name in names:
            cluster.signal(name, signal.SIGCONT)

    return inflict


def killed(*names: str) -> Inflict:
    """The supervisor starts them again."""

    @contextmanager
    def inflict(cluster: FaultCluster, begins: Begins) -> Iterator[None]:
        begins()
        for name in names:
            cluster.signal(name, signal.SIGKILL)
        yield

    return inflict


def killed_alone(*names: str) -> Inflict:
    """The supervisor is held meanwhile."""

    @contextmanager
    def inflict(cluster: FaultCluster, begins: Begins) -> Iterator[None]:
        begins()
        cluster.kill_unsupervised(*names)
        yield
        cluster.resume_supervisor()

    return inflict


def ahead(*names: str) -> Inflict:
    """A day, of these processes alone."""

    @contextmanager
    def inflict(cluster: FaultCluster, begins: Begins) -> Iterator[None]:
        if cluster.clocks is None:
            raise ValueError("a cluster whose clocks cannot be set")
        begins()
        cluster.clocks.set_ahead(*map(cluster.standalone.pid, names), seconds=clock_ahead_s)
        yield
        cluster.clocks.set_right()

    return inflict


@contextmanager
def slow_minio(cluster: FaultCluster, begins: Begins) -> Iterator[None]:
    ended = Event()

    def slow() -> None:
        while not ended.is_set():
            cluster.signal(MINIO, signal.SIGSTOP)
            ended.wait(slow_stopped_s)
            cluster.signal(MINIO, signal.SIGCONT)
            ended.wait(slow_running_s)

    begins()
    thread = Thread(target=slow, daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()


@contextmanager
def gone_folder(cluster: FaultCluster, begins: Begins) -> Iterator[None]:
    """A file is where the folder of Tier 2 was: root may write to what others may not."""
    folder, away = cluster.data / "tier2", cluster.data / "tier2-away"
    begins()
    folder.rename(away)
    folder.write_text("no folder")
    yield
    folder.unlink()
    away.rename(folder)


def full(*names: str) -> Inflict:
    @contextmanager
    def inflict(cluster: FaultCluster, begins: Begins) -> Iterator[None]:
        before = {name: cluster.redis(name, "CONFIG", "GET", "maxmemory").split(b"\r\n")[4].decode() for name in names}
        begins()
        for name in names:
            cluster.redis(name, "CONFIG", "SET", "maxmemory", small_memory)
        yield
        for name, limit in before.items():
            cluster.redis(name, "CONFIG", "SET", "maxmemory", limit)

    return inflict


THREE: Final = ("redis-0", "redis-1", "redis-2")
_DOWN: Final = 'up{job="%s"} == 0'
_STORE_DOWN, _CONTROLLER_DOWN = _DOWN % "pravega-segment-store", _DOWN % "pravega-controller"
_SILENT: Final = "pravega_store_tier1_silent_seconds > 5"
_TIER2: Final = "pravega_store_tier2_failing_seconds > 10"
_TIER1_TOLD: Final = {
    "stores": "tier1-silent|tier1-not-acknowledging",
    "controllers": "lease-lost",
    "window": "lease-lost",
    "alerts": "Tier1Silent",
}
_CLOCK_TOLD: Final = {
    "controllers": "clock-differs",
    "stores": "clock-differs",
    "window": "clock-differs",
    "alerts": "ClockDiffers",
}
_TIER2_TOLD: Final = {"stores": "tier2-failing", "window": "tier2-failing", "alerts": "Tier2Failing"}

FAULTS: Final = {
    fault.name: fault
    for fault in (
        Fault(
            "store-stopped",
            "SIGSTOP of a store; the supervisor kills it after 30 s",
            stopped(STORE),
            _STORE_DOWN,
            {"stores": NO_ANSWER, "alerts": "StoreDown"},
            hold_s=40.0,
            mends_itself=True,
            whole=True,
        ),
        Fault(
            "store-killed",
            "SIGKILL of a store, with the supervisor",
            killed(STORE),
            _STORE_DOWN,
            {"stores": NO_ANSWER, "alerts": "StoreDown"},
            mends_itself=True,
        ),
        Fault(
            "store-killed-alone",
            "SIGKILL of a store, without the supervisor",
            killed_alone(STORE),
            _STORE_DOWN,
            {"stores": NO_ANSWER, "alerts": "StoreDown"},
            hold_s=20.0,
            whole=True,
        ),
        Fault(
            "no-store",
            "SIGKILL of both stores, without the supervisor: containers without owner",
            killed_alone(STORE, "segment-store-1"),
            "pravega_controller_containers_without_store > 0",
            {
                "controllers": "containers-without-store",
                "stores": NO_ANSWER,
                "window": "containers-without-store",
                "alerts": "ContainersWithoutStore",
            },
        ),
        Fault("redis-stopped", "SIGSTOP of the only Redis", stopped(REDIS), _SILENT, _TIER1_TOLD),
        Fault(
            "redis-killed",
            "SIGKILL of the only Redis, without the supervisor",
            killed_alone(REDIS),
            _SILENT,
            _TIER1_TOLD,
        ),
        Fault(
            "tier1-full",
            "the only Redis without memory",
            full(REDIS),
            "pravega_store_tier1_used_bytes / (pravega_store_tier1_limit_bytes > 0) > 0.8",
            {
                "stores": "tier1-full|appends-wait",
                "window": "tier1-full|appends-wait|lease-lost",
                "alerts": "Tier1NearlyFull",
            },
        ),
        Fault(
            "tier2-killed", "SIGKILL of MinIO", killed_alone(MINIO), _TIER2, _TIER2_TOLD, hold_s=110.0, tier2="minio"
        ),
        Fault("tier2-stopped", "SIGSTOP of MinIO", stopped(MINIO), _TIER2, _TIER2_TOLD, hold_s=150.0, tier2="minio"),
        Fault("tier2-gone", "the folder of Tier 2 gone", gone_folder, _TIER2, _TIER2_TOLD, hold_s=110.0, tier2="dir"),
        Fault(
            "tier2-slow",
            f"MinIO stopped for {slow_stopped_s:g} s again and again",
            slow_minio,
            "histogram_quantile(0.99, sum by (le, instance) (rate(pravega_store_tier2_call_seconds_bucket[5m]))) > 1",
            {"alerts": "Tier2Slow"},
            hold_s=45.0,
            tier2="minio",
        ),
        Fault(
            "controller-stopped",
            "SIGSTOP of a controller; the supervisor kills it after 30 s",
            stopped(CONTROLLER),
            _CONTROLLER_DOWN,
            {"controllers": NO_ANSWER, "window": NO_ANSWER, "alerts": "ControllerDown"},
            hold_s=40.0,
            mends_itself=True,
            whole=True,
        ),
        Fault(
            "controller-killed",
            "SIGKILL of a controller, without the supervisor",
            killed_alone(CONTROLLER),
            _CONTROLLER_DOWN,
            {"controllers": NO_ANSWER, "window": NO_ANSWER, "alerts": "ControllerDown"},
            hold_s=20.0,
        ),
        Fault(
            "segment-damaged",
            "an object of a segment gone from Tier 2, and the segment read",
            damaged_segment,
            "pravega_container_quarantined_segments > 0",
            {"stores": "segments-damaged", "window": "segments-damaged", "alerts": "SegmentsDamaged"},
        ),
        Fault(
            "commit-blocked",
            "a segment of a committed transaction gone",
            blocked_commit,
            "pravega_controller_blocked_streams > 0",
            {"controllers": "streams-blocked", "window": "streams-blocked", "alerts": "StreamsBlocked"},
        ),
        Fault(
            "one-of-three-stopped",
            "SIGSTOP of one of three Redis",
            stopped(THREE[0]),
            _SILENT,
            {
                "stores": "tier1-silent|plog-servers-out",
                "window": "tier1-silent|plog-servers-out",
                "alerts": "Tier1Silent",
            },
            kind="three",
        ),
        Fault(
            "two-of-three-stopped",
            "SIGSTOP of two of three Redis",
            stopped(*THREE[:2]),
            _SILENT,
            {"stores": "tier1-silent", "window": "tier1-silent", "alerts": "Tier1Silent"},
            kind="three",
        ),
        Fault(
            "three-full",
            "three Redis without memory, the control plane's has some",
            full(*THREE),
            "pravega_store_tier1_used_bytes / (pravega_store_tier1_limit_bytes > 0) > 0.8",
            {"stores": "tier1-full|appends-wait", "window": "tier1-full|appends-wait", "alerts": "Tier1NearlyFull"},
            kind="three",
        ),
        Fault(
            "certificate-ends",
            "the certificate of all services ends in 3 days",
            ending_certificate,
            'pravega_store_problem{code="certificate-ends"} > 0',
            {
                "controllers": "certificate-ends",
                "stores": "certificate-ends",
                "window": "certificate-ends",
                "alerts": "CertificateEnds",
            },
            kind="tls",
        ),
        Fault(
            "certificate-refused",
            "the key of all services replaced by that of another certificate",
            refused_certificate,
            'pravega_store_problem{code="certificate-refused"} > 0',
            {
                "controllers": "certificate-refused",
                "stores": "certificate-refused",
                "window": "certificate-refused",
                "alerts": "CertificateRefused",
            },
            kind="tls",
        ),
        Fault(
            "clock-ahead",
            "the clocks of a controller and of a store a day ahead",
            ahead(CONTROLLER, STORE),
            'pravega_controller_problem{code="clock-differs"} > 0',
            _CLOCK_TOLD,
            kind="clock",
        ),
        Fault(
            "redis-clock-ahead",
            "the clock of the only Redis a day ahead",
            ahead(REDIS),
            'pravega_controller_problem{code="clock-differs"} > 0',
            _CLOCK_TOLD,
            kind="clock",
        ),
    )
}
