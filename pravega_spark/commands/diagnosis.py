"""Runs the checks of ``doctor`` on this machine and its services; each one that fails names a remedy."""

from __future__ import annotations

import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from pravega_common.errors import PravegaError, UnsupportedOperation
from pravega_common.names import segment_name
from pravega_common.wire import commands as wire
from pravega_spark.commands.connection import check_listens, cluster_address
from pravega_spark.commands.transaction import remedy
from pravega_spark.standalone.binaries import find_minio, find_redis
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.connection.blocking import WireSocket
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.event.event_writer import EventWriter

python_version_min: Final = (3, 11)
java_version_min: Final = 17
pyarrow_version_min: Final = (18,)
open_files_min: Final = 17_500
"""Files that a segment store of the default settings may have open."""
pyspark_version: Final = (4, 3)
probes: Final = 5
"""Round trips of a measurement, which gives their median."""
store_search_segments: Final = 64
"""Segment names whose owners are asked for, to find the stores: nearly every one lies in a container of its own."""
scratch_events: Final = 20
program_time_max_s: Final = 20.0


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check. ``is_ok``: None if it was skipped or is optional; ``remedy`` helps when it failed."""

    name: str
    is_ok: bool | None
    detail: str
    remedy: str = ""


def check(name: str, remedy: str, look: Callable[[], str]) -> Finding:
    """Runs a check: ``look`` returns what it found, or raises what is wrong."""
    try:
        return Finding(name, True, look())
    except (PravegaError, OSError, PackageNotFoundError, ValueError, subprocess.SubprocessError) as error:
        return Finding(name, False, " ".join(str(error).split()) or type(error).__name__, remedy)


# ---- this machine ----------------------------------------------------------------------------------------------------


def installed() -> list[Finding]:
    """Checks the versions of what the connector runs on, and the servers that a standalone would start."""
    return [
        check("python", "use Python 3.11 or newer", _python),
        check("pravega-spark", "install it with: pip install pravega-spark", lambda: version("pravega-spark")),
        check(
            "pyspark",
            "install it with: pip install 'pravega-spark[spark]'",
            lambda: _package("pyspark", pyspark_version, is_exact=True),
        ),
        check(
            "pyarrow", "install it with: pip install 'pyarrow>=18'", lambda: _package("pyarrow", pyarrow_version_min)
        ),
        check("java", f"install Java {java_version_min} or newer, or set JAVA_HOME", _java),
        _optional(
            check(
                "redis",
                "only a standalone needs it: install redis-server, or use --tier1 file",
                lambda: str(find_redis()),
            )
        ),
        _optional(check("open files", _open_files_remedy, _open_files)),
        _optional(check("minio", "only --tier2 minio needs it: put minio on the path", lambda: str(find_minio()))),
    ]


def _optional(finding: Finding) -> Finding:
    return finding if finding.is_ok else Finding(finding.name, None, finding.detail, finding.remedy)


def _python() -> str:
    if sys.version_info < python_version_min:
        raise ValueError(f"{sys.version.split()[0]} is too old")
    return f"{sys.version.split()[0]} ({sys.executable})"


def _package(name: str, wanted: tuple[int, ...], *, is_exact: bool = False) -> str:
    found = version(name)
    numbers = tuple(int(part) for part in re.findall(r"\d+", found)[: len(wanted)])
    if numbers < wanted or (is_exact and numbers != wanted):
        text = ".".join(map(str, wanted))
        raise ValueError(f"{found} is installed, {text}{'' if is_exact else ' or newer'} is needed")
    return found


_open_files_remedy: Final = "only a standalone needs it: raise ulimit -n; with fewer a store serves fewer connections"


def _open_files() -> str:
    """The limit that a store started from here gets: it raises the soft one to the hard one by itself."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < open_files_min:
        raise ValueError(f"a process may open {hard} files, a store with all its connections needs {open_files_min}")
    return "unlimited" if hard == resource.RLIM_INFINITY else str(hard)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None:
        raise ValueError("there is no java on the path, and JAVA_HOME is not set")
    answer = subprocess.run(
        [program, "-version"], capture_output=True, text=True, timeout=program_time_max_s, check=False
    ).stderr
    match = re.search(r'version "(\d+)([^"]*)"', answer)
    if match is None:
        raise ValueError(f"{program} does not say its version")
    if int(match[1]) < java_version_min:
        raise ValueError(f"{program} is version {match[1]}{match[2]}, {java_version_min} or newer is needed")
    return f"{match[1]}{match[2]} ({program})"


# ---- services --------------------------------------------------------------------------------------------------------


def services(controller: str) -> list[Finding]:
    """Checks the controller, every segment store that can be found, and a few events written and read."""
    first = check("controller", "start one with: pravega-spark standalone", lambda: _controller(controller))
    if not first.is_ok:
        skipped = "not looked at without a controller"
        return [first, Finding("segment stores", None, skipped), Finding("round trip", None, skipped)]
    with StreamClient(cluster_address(controller)) as client:
        found: list[Endpoint] = []

        def search() -> str:
            found.extend(find_stores(client))
            return f"{len(found)} found: {', '.join(map(str, found))}"

        stores = check("segment stores", "look into the controller's log: no store owns the containers", search)
        each = [
            check(f"segment store {item}", "is the address that the controller names reachable from here?", _ping(item))
            for item in found
        ]
        return [first, stores, *each, _commits(client), _round_trip(client)]


def _commits(client: StreamClient) -> Finding:
    """Checks for streams whose commits are blocked."""
    try:
        blocked = client.operations.blocked_streams()
    except UnsupportedOperation:
        return Finding("commits", None, "a plain Pravega does not tell")
    except PravegaError as error:
        return Finding("commits", False, str(error), "look into the controller's log")
    if not blocked:
        return Finding("commits", True, "no stream is blocked")
    scope, stream, obstacles = blocked[0]
    detail = f"{len(blocked)} streams are blocked; {scope}/{stream}: {obstacles[0].detail}"
    return Finding("commits", False, detail, remedy(f"{scope}/{stream}", obstacles[0]))


def _controller(controller: str) -> str:
    check_listens(controller)
    with StreamClient(cluster_address(controller)) as client:
        return f"{controller}, {_median_ms(lambda: client.controller.scope_exists('doctor')):.1f} ms"


def find_stores(client: StreamClient) -> list[Endpoint]:
    """Finds the stores as owners of segments, which follow from the names alone; no such segment need exist."""
    owners = {client.controller.endpoint("doctor", "probe", number) for number in range(store_search_segments)}
    return sorted(owners, key=str)


def _ping(endpoint: Endpoint) -> Callable[[], str]:
    def look() -> str:
        connection = WireSocket(endpoint)
        try:
            # Any answer is good, even that this store does not own the segment.
            name = segment_name("doctor", "probe", 0)
            took_ms = _median_ms(lambda: connection.call(lambda rid: wire.GetStreamSegmentInfo(rid, name)))
        finally:
            connection.close()
        return f"{took_ms:.1f} ms"

    return look


def _median_ms(call: Callable[[], object]) -> float:
    took = []
    for _ in range(probes):
        start_s = time.perf_counter()
        call()
        took.append((time.perf_counter() - start_s) * 1000)
    return statistics.median(took)


def _round_trip(client: StreamClient) -> Finding:
    scope = f"doctor-{uuid.uuid4().hex[:12]}"
    remedy = "look into the logs of the segment stores; is Redis or the long-term storage full or away?"
    finding = check("round trip", remedy, lambda: _write_and_read(client, scope))
    removed = check("clean-up", f"delete scope {scope} by hand", lambda: remove_scratch(client, scope))
    return finding if removed.is_ok else removed


def make_scratch(client: StreamClient, scope: str) -> list[bytes]:
    """Makes a stream ``probe`` with a few events; returns them."""
    events = [f"event {number}".encode() for number in range(scratch_events)]
    client.controller.create_scope(scope)
    client.controller.create_stream(scope, "probe")
    with EventWriter(client, scope, "probe") as writer:
        for event in events:
            writer.write(event, "key")
    return events


def _write_and_read(client: StreamClient, scope: str) -> str:
    start_s = time.perf_counter()
    written = make_scratch(client, scope)
    read = [event.data for event in read_events(client, scope, "probe")]
    if read != written:
        raise ValueError(f"{len(written)} events were written, and {len(read)} others were read")
    return f"{len(read)} events in {(time.perf_counter() - start_s) * 1000:.0f} ms, stream made and read"


def remove_scratch(client: StreamClient, scope: str) -> str:
    if client.controller.stream_exists(scope, "probe"):
        client.controller.seal_stream(scope, "probe")
        client.controller.delete_stream(scope, "probe")
    client.controller.delete_scope(scope)
    return "done"


def is_well(findings: Iterable[Finding]) -> bool:
    return all(item.is_ok is not False for item in findings)
