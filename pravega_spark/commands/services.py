"""``standalone|segment-store|controller``: start the services."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from pravega_common.runtime.lasting_imports import lasting_imports
from pravega_spark.standalone.options import (
    LogFormat,
    LogLevel,
    StandaloneOptions,
    Tier1,
    Tier2,
    default_data_dir,
    hung_after_s_default,
)


def add_to(application: typer.Typer) -> None:
    application.command()(standalone)
    application.command("segment-store")(segment_store)
    application.command()(controller)


def standalone(
    data_dir: Annotated[Path, typer.Option(help="Folder of all data, settings and logs.")] = default_data_dir(),  # noqa: B008
    host: Annotated[str, typer.Option(help="Address to listen on and to tell clients.")] = "127.0.0.1",
    controller_port: Annotated[int, typer.Option(help="First gRPC port of the controllers.")] = 9090,
    rest_port: Annotated[int, typer.Option(help="REST, health and metrics, first port.")] = 10080,
    segment_store_port: Annotated[int, typer.Option(help="First port of the segment stores.")] = 12345,
    segment_stores: Annotated[int, typer.Option(help="Number of segment store processes.")] = 1,
    containers: Annotated[int, typer.Option(help="Segment containers, fixed at the first start.")] = 4,
    tier2: Annotated[Tier2, typer.Option(help="Long-term storage.")] = Tier2.DIR,
    tier2_url: Annotated[str, typer.Option(help="s3: https://host:port/bucket; arrow: hdfs://host:port/folder.")] = "",
    ready_file: Annotated[Path | None, typer.Option(help="JSON with the endpoints, written when all serve.")] = None,
    redis_memory_mib: Annotated[
        int, typer.Option(help="Memory of each Redis; 0: together half of this machine's.")
    ] = 0,
    tier1: Annotated[Tier1, typer.Option(help="The log; file: no Redis, one copy, one store.")] = Tier1.REDIS,
    cache_folder: Annotated[Path | None, typer.Option(help="Keep evicted blocks here (extra rocksdb).")] = None,
    cache_mib: Annotated[int, typer.Option(help="Size of that cache, each store; 0: the default, 8 GiB.")] = 0,
    redis_servers: Annotated[int, typer.Option(help="1, or 3 of which any one may be lost; fixed at the start.")] = 1,
    controllers: Annotated[int, typer.Option(help="Controller processes, on successive ports.")] = 1,
    tls: Annotated[bool, typer.Option("--tls", help="Speak TLS, with certificates made in the data folder.")] = False,
    metrics_port: Annotated[int, typer.Option(help="Health and metrics of the stores, first port.")] = 12445,
    published: Annotated[str, typer.Option(help="Host name to tell clients; needed with --host 0.0.0.0.")] = "",
    log_level: Annotated[LogLevel, typer.Option(help="Records below it are not logged.")] = LogLevel.INFO,
    log_format: Annotated[LogFormat, typer.Option(help="json: one object a line.")] = LogFormat.TEXT,
    hung_after_s: Annotated[
        float, typer.Option(help="Start a service again that answers nothing for so long; 0: never.")
    ] = hung_after_s_default,
) -> None:
    """Start everything on this machine, until SIGTERM or Ctrl-C."""
    # Needs what services need, which the help and the other commands of this module do without.
    with lasting_imports():
        from pravega_spark.standalone.standalone import run_standalone

    options = StandaloneOptions(
        data_dir, host, controller_port, rest_port, segment_store_port, segment_stores, containers, tier2, tier2_url,
        ready_file, redis_memory_mib, tier1, cache_folder, cache_mib, redis_servers,
        controllers, tls, metrics_port, published, log_level, log_format, hung_after_s,
    )  # fmt: skip
    asyncio.run(run_standalone(options))


Configuration = Annotated[
    Path, typer.Option("--config", exists=True, dir_okay=False, help="Every key: pravega-spark files conf.")
]


def segment_store(config: Configuration) -> None:
    """Start one segment store."""
    _become("segment_service", config)


def controller(config: Configuration) -> None:
    """Start one controller."""
    _become("controller_service", config)


def _become(package: str, config: Path) -> None:
    """Replaces this process by the service's own, which imports neither Spark nor this command line."""
    os.execv(sys.executable, [sys.executable, "-m", package, "--config", str(config)])


def become_maintenance(command: str, config: Path, *arguments: str) -> None:
    """Replaces this process by the services' own tool."""
    program = [sys.executable, "-m", "segment_service.maintenance", command, "--config", str(config), *arguments]
    os.execv(sys.executable, program)
