"""Bounds the gRPC connections of each host, which gRPC itself counts together only.

gRPC accepts connections in threads of its own and shows none of them. The watch finds them among the open files of the
process, and shuts down those of a host that are too many, first those that have been silent for longest: gRPC then
closes them like any connection that ends.
"""

from __future__ import annotations

import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from prometheus_client import Counter

from pravega_common.runtime.clock import Clock
from pravega_common.runtime.time_slices import TimeSlices

connections_max_default: Final = 4_096
connections_per_peer_max_default: Final = 1_024
look_s: Final = 0.5
"""Pause between two looks, while the process has room for more open files than a host may have connections."""
looks_per_time: Final = 50
"""Pause after a look, in times that it took: connections that merely exist cost 2 % of a processor at most."""
warning_period_s: Final = 60.0

CUT: Final = Counter("pravega_controller_cut_connections", "gRPC connections of a host above its limit that were cut")

_log = structlog.get_logger(service="grpc-server")
_FILES: Final = Path("/dev/fd")
_STATUS: Final = Path("/proc/self/status")
_SILENCE: Final = struct.Struct("=52xI")
"""``tcpi_last_data_recv`` in Linux's ``tcp_info``: milliseconds since the peer sent something."""


@dataclass(frozen=True, slots=True, order=True)
class _Connection:
    silent_ms: int
    file: int
    peer: tuple[str, int]


class ConnectionWatch:
    """Looks at the connections to one port of this process."""

    def __init__(self, clock: Clock, per_peer_max: int = connections_per_peer_max_default) -> None:
        self._clock = clock
        self._per_peer_max = per_peer_max
        self._warned_at_s = float("-inf")

    async def run(self, port: int) -> None:
        """Look again and again, until cancelled."""
        pause_s = look_s
        while True:
            await self._clock.sleep(pause_s)
            pause_s = look_s
            if files_room() > self._per_peer_max:
                began_s = self._clock.monotonic_s()
                await self.look(port)
                pause_s = max(look_s, looks_per_time * (self._clock.monotonic_s() - began_s))

    async def look(self, port: int) -> None:
        """Cut what is too many."""
        by_host: dict[str, list[_Connection]] = {}
        slices = TimeSlices(self._clock, 16)
        for file in os.listdir(_FILES):
            found = _connection(int(file), port)
            if found is not None:
                by_host.setdefault(found.peer[0], []).append(found)
            await slices.step()
        for host, connections in by_host.items():
            excess = len(connections) - self._per_peer_max
            if excess > 0:
                connections.sort(reverse=True)
                self._cut(host, connections[:excess], port)

    def _cut(self, host: str, connections: list[_Connection], port: int) -> None:
        cut = sum(_shut_down(connection, port) for connection in connections)
        CUT.inc(cut)
        now_s = self._clock.monotonic_s()
        if now_s - self._warned_at_s >= warning_period_s:
            self._warned_at_s = now_s
            _log.warning(
                "a host has more gRPC connections than its limit (controller.connections_per_peer_max)",
                host=host,
                limit=self._per_peer_max,
                cut=cut,
            )


def files_room() -> int:
    """The files that the process has room for at this moment: never fewer than are open."""
    try:
        status = _STATUS.read_text()
    except OSError:  # no Linux
        return len(os.listdir(_FILES))
    return int(status.partition("FDSize:")[2].split()[0])


def _connection(file: int, port: int) -> _Connection | None:
    """The connection of a peer to the port that a file is; None for all others."""
    try:
        made = socket.socket(fileno=file)
    except OSError:
        return None
    try:
        peer = _peer_at(made, port)
        return None if peer is None else _Connection(_silent_ms(made), file, peer)
    finally:
        made.detach()  # gRPC's own file stays open


def _peer_at(made: socket.socket, port: int) -> tuple[str, int] | None:
    if made.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    try:
        if made.getsockname()[1] != port:
            return None
        host, peer_port = made.getpeername()[:2]
    except OSError:  # it listens, or has just ended
        return None
    return str(host).removeprefix("::ffff:"), int(peer_port)


def _silent_ms(made: socket.socket) -> int:
    """Time since the peer sent something; 0 where the system does not tell."""
    if not hasattr(socket, "TCP_INFO"):
        return 0
    (silent_ms,) = _SILENCE.unpack(made.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SILENCE.size))
    return int(silent_ms)


def _shut_down(connection: _Connection, port: int) -> bool:
    """Shut a connection down, unless it ended and its file is another one by now."""
    try:
        file = os.dup(connection.file)
    except OSError:
        return False
    try:
        made = socket.socket(fileno=file)
    except OSError:
        os.close(file)
        return False
    with made:
        if _peer_at(made, port) != connection.peer:
            return False
        try:
            made.shutdown(socket.SHUT_RDWR)
        except OSError:  # the peer was first
            return False
        return True
