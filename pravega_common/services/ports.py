"""Finds free TCP ports for servers without a well-known number."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from pravega_common.errors import ConfigurationError

port_min: Final = 10_240
outbound_port_min_default: Final = 32_768
"""Where the ports of outbound connections begin on Linux, if it does not say so itself."""
port_attempts_max: Final = 1_000

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
    ``ConfigurationError`` if none are found in ``port_attempts_max`` attempts.
    """
    chooser = choose or random.SystemRandom()
    end = outbound_port_min() - count
    for _ in range(port_attempts_max):
        first = chooser.randrange(port_min, end)
        ports = list(range(first, first + count))
        if not set(ports) & set(besides) and _are_free(host, ports):
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
