"""Runs a wire server over one container in memory as a process of its own; prints its port, ends with its input."""

from __future__ import annotations

import asyncio
import sys

import structlog
import uvloop

from segment_service.host.listener import WireServer
from segment_service.open_files import raise_open_files
from segment_service.tables.table_extension import TableExtension
from tests.support.containers import ContainerKit


async def main(connections_wanted: int) -> None:
    kit = ContainerKit()
    kit.write_to_tier2()
    container = await kit.open()
    files = raise_open_files(connections_wanted)
    server = WireServer(container, TableExtension(container), kit.back_pressure, connections_max=files.connections_max)
    await server.start()
    print(f"port {server.port}", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await container.stop()
    await server.stop()


if __name__ == "__main__":
    # Nobody reads what it would log: a full pipe would stop it.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    uvloop.run(main(int(sys.argv[1])))
