"""Finds free TCP ports for servers without a well-known number."""

from __future__ import annotations

import random
import socket
import sys
import threading
from collections import deque
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from pravega_common.errors import ConfigurationError

port_min: Final = 10_240
outbound_port_min_default: Final = 32_768
"""Where the ports of outbound connections begin on Linux, if it does not say so itself."""
port_attempts_max: Final = 1_000
claimed_ports_max: Final = 256
"""A process claims no more than its newest ports; a standalone needs one, a long run of tests thousands in turn."""

_OUTBOUND_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def outbound_port_min() -> int:
    """First port that the system may give to an outbound connection."""
    try:
        first = int(_OUTBOUND_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first = outbound_port_min_default
    return first if first > port_min + port_attempts_max else outbound_port_min_default


def free_ports(
    host: str, count: int, *, besides: Collection[int] = (), choose: random.Random | None = None
) -> list[int]:
    """``count`` adjacent ports that were free a moment ago and are not among ``besides``.

    They lie below the ports of outbound connections: no client can take one while its server starts, or starts again.
    No other call gives them, in this process or (on Linux) in another one of the machine, until this process ends or
    has chosen ``claimed_ports_max`` more.
    ``ConfigurationError`` if none are found in ``port_attempts_max`` attempts.
    """
    chooser = choose or random.SystemRandom()
    end = outbound_port_min() - count
    for _ in range(port_attempts_max):
        first = chooser.randrange(port_min, end)
        ports = list(range(first, first + count))
        if not set(ports) & set(besides) and _are_free(host, ports) and _claims.take(ports):
            return ports
    raise ConfigurationError(
        f"{count} free ports in a row were not found on {host} from {port_min} on: end what listens there"
    )


def _are_free(host: str, ports: list[int]) -> bool:
    with ExitStack() as held:
        for port in ports:
            probe = held.enter_context(socket.socket())
            # As servers do: what a server that has ended left behind does not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError:
                return False
    return True


class _Claims:
    """Keeps ports for this process between their choice and their use, and while their server starts again.

    Each is a socket with an abstract name, which one process of a network namespace alone can have, and which ends with
    it. Systems without such names know the claims of this process only.
    """

    def __init__(self) -> None:
        self._held: deque[tuple[int, socket.socket | None]] = deque()
        self._lock = threading.Lock()

    def take(self, ports: list[int]) -> bool:
        """Claims all ports, or none of them where one has a claim."""
        with self._lock, ExitStack() as undo:
            mine = {port for port, _ in self._held}
            taken: list[tuple[int, socket.socket | None]] = []
            for port in ports:
                if port in mine:
                    return False
                mark = None
                if sys.platform == "linux":
                    mark = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
                    try:
                        mark.bind(f"\0pravega-spark-port-{port}")
                    except OSError:
                        return False
                taken.append((port, mark))
            undo.pop_all()
            self._held.extend(taken)
            while len(self._held) > claimed_ports_max:
                _, oldest = self._held.popleft()
                if oldest is not None:
                    oldest.close()
            return True


_claims: Final = _Claims()
