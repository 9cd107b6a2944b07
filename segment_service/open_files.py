"""Makes sure that a store may open as many files as it has connections to serve."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

from segment_service.host.admission import controller_connections_reserved

files_reserved: Final = 1_024
"""Files beside connections: Redis, Tier 2, the disk cache, and connections that are just being refused."""


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """The connections that the limit on open files leaves room for."""

    connections_max: int
    warning: str
    """The reason why that is fewer than wanted; empty if it is not."""


def raise_open_files(connections_wanted: int) -> OpenFiles:
    """Raise this process's own limit as far as the system lets it."""
    needed = connections_wanted + controller_connections_reserved + files_reserved
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return fitting(connections_wanted, needed if soft == resource.RLIM_INFINITY else soft)


def fitting(connections_wanted: int, files_max: int) -> OpenFiles:
    """Return the connections that this number of files leaves room for, at least one."""
    needed = connections_wanted + controller_connections_reserved + files_reserved
    if files_max >= needed:
        return OpenFiles(connections_wanted, "")
    # A small limit is shared: half of it for connections.
    room = max(files_max - controller_connections_reserved - files_reserved, files_max // 2, 1)
    served = min(room, connections_wanted)
    return OpenFiles(
        served,
        f"this process may open {files_max} files (ulimit -n), so it serves {served} connections and not the "
        f"{connections_wanted} of store.connections_max: let it open {needed}",
    )
