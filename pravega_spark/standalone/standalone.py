"""Runs a standalone: checks, child processes, ready file, until a signal ends it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import structlog
from rich.console import Console

from pravega_common.errors import ConfigurationError
from pravega_common.services.base import Service
from pravega_common.services.log_output import DroppingOutput
from pravega_common.services.ports import free_ports
from pravega_common.services.ready_file import make_room_for_ready_file, remove_ready_file, write_ready_file
from pravega_spark.standalone.data_folder import DataFolder
from pravega_spark.standalone.log_page_cache import LogPageCache
from pravega_spark.standalone.log_rotation import LogRotation
from pravega_spark.standalone.options import TLS_FOLDER, StandaloneOptions, Tier1, Tier2, authority_file, redis_names
from pravega_spark.standalone.quiet_rewrite import QuietRewrite
from pravega_spark.standalone.redis_and_minio import minio_bucket, minio_credentials, minio_spec, redis_children
from pravega_spark.standalone.service_children import (
    Section,
    controller_spec,
    segment_store_spec,
    shared_sections,
    store_name,
)
from pravega_spark.standalone.socket_folder import remove_socket_folder, socket_folder
from pravega_spark.standalone.supervisor import ChildSpec, Supervisor

private_umask: Final = 0o077


async def run_standalone(options: StandaloneOptions) -> None:
    """Runs until SIGTERM or Ctrl-C. ``ConfigurationError`` before anything starts if it cannot work."""
    options.validate()
    structlog.configure(logger_factory=DroppingOutput())
    folder = DataFolder(options.data_dir)
    # What the standalone and its children make is for this user alone.
    umask = os.umask(private_umask)
    try:
        folder.open(
            {
                "containers": options.containers,
                "tier1": str(options.tier1),
                "tier2": str(options.tier2),
                "redis_servers": options.redis_servers,
            }
        )
        await _serve(options, folder)
    finally:
        folder.close()
        os.umask(umask)


async def _serve(options: StandaloneOptions, folder: DataFolder) -> None:
    if options.ready_file is not None:
        try:
            make_room_for_ready_file(options.ready_file)
        except ConfigurationError:
            if folder.is_new:
                folder.undo()
            raise
    supervisor: Supervisor | None = None
    try:
        stages, servers = _children(options, folder)

        def announce(running: Supervisor) -> None:
            if options.ready_file is not None:
                write_ready_file(options.ready_file, {**_endpoints(options), **servers, "pids": running.pids()})

        supervisor = Supervisor(
            stages, announce, hung_after_s=options.hung_after_s, inherited=(folder.lock_descriptor,)
        )
        rotation = LogRotation([spec.log_file for stage in stages for spec in stage])
        await _supervise(options, folder, supervisor, rotation, servers)
    finally:
        if options.ready_file is not None:
            remove_ready_file(options.ready_file)
        stores = [store_name(index) for index in range(options.segment_stores)]
        if folder.is_new and (supervisor is None or not supervisor.has_served(stores)):
            # A first start that failed must not pin the folder to its options. Without a store nobody has written
            # anything: controllers wait for one before they serve.
            folder.undo()
            remove_socket_folder(folder.root)


async def _supervise(
    options: StandaloneOptions,
    folder: DataFolder,
    supervisor: Supervisor,
    rotation: LogRotation,
    servers: dict[str, Any],
) -> None:
    helpers = [rotation, *helpers_of_redis(options, folder.root, servers)]
    for helper in helpers:
        supervisor.own(helper)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    supervisor.on_failure(lambda _: ended.set())
    starting = asyncio.ensure_future(supervisor.start())
    end = asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait((starting, end), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            for helper in helpers:
                await helper.start()
            supervisor.announce()
            _print_ready(options, servers)
            await end
    finally:
        starting.cancel()
        end.cancel()
        for helper in helpers:
            await helper.stop()
        await supervisor.stop()
    if supervisor.failure is not None:
        raise supervisor.failure


def helpers_of_redis(options: StandaloneOptions, folder: Path, servers: Mapping[str, str]) -> list[Service]:
    """The services that look after each Redis among ``servers``, addresses by name, with its files in ``folder``."""
    names = [name for name in redis_names(options.redis_servers) if name in servers]
    page_caches = [LogPageCache(folder / name) for name in names]
    rewrites = [QuietRewrite(name, Path(servers[name].removeprefix("unix:"))) for name in names]
    return [*page_caches, *rewrites]


def _children(options: StandaloneOptions, folder: DataFolder) -> tuple[list[list[ChildSpec]], dict[str, Any]]:
    """Returns the children in stages, servers before services, and the addresses of the Redis servers and MinIO."""
    host, logs, conf = options.local_host, folder.folder("logs"), folder.folder("conf")
    server_specs: list[ChildSpec] = []
    servers: dict[str, Any] = {}
    if options.tier1 is Tier1.FILE:
        tier1: Section
        cpo_url, tier1 = f"{_file_url(folder, 'cpo')}/oracle.db", {"url": _file_url(folder, "tier1")}
    else:
        redis = redis_children(options, folder, socket_folder(folder.root))
        server_specs += [server.spec(conf, logs) for server in redis]
        servers |= {server.name: server.address for server in redis}
        cpo_url, tier1 = redis[-1].address, {"servers": [server.address for server in redis[: options.redis_servers]]}
    url, (access, secret) = options.tier2_url, options.s3_keys if options.tier2 is Tier2.S3 else ("", "")
    if options.tier2 is Tier2.DIR:
        url = _file_url(folder, "tier2")
    elif options.tier2 is Tier2.MINIO:
        minio_folder = folder.folder("minio")
        (minio_port,) = free_ports(host, 1, besides=options.ports)
        server_specs.append(minio_spec(minio_folder, logs / "minio.log", host, minio_port))
        url, (access, secret) = f"http://{host}:{minio_port}/{minio_bucket}", minio_credentials(minio_folder)
        servers["minio"] = f"{host}:{minio_port}"
    tier2: dict[str, str | int | bool | list[str]] = {"url": url, "access_key": access, "secret_key": secret}
    if options.tier2 in (Tier2.MINIO, Tier2.S3):
        tier2["make_bucket"] = True
    if options.tier2 is Tier2.MINIO:
        tier2["allow_plaintext"] = True  # its own, on this machine
    tiers: dict[str, Section] = {"tier1": tier1, "tier2": tier2}
    shared = {**shared_sections(cpo_url, folder.root / "cluster.keys"), **_tls_section(options, folder)}
    stores = [segment_store_spec(options, index, shared, tiers, conf, logs) for index in range(options.segment_stores)]
    controllers = [controller_spec(options, index, shared, conf, logs) for index in range(options.controllers)]
    # Each of the services takes a second of a core to start, and controllers wait for stores by themselves.
    return [server_specs, [*stores, *controllers]], servers


def _tls_section(options: StandaloneOptions, folder: DataFolder) -> dict[str, Section]:
    """The settings of TLS that all services have; none without ``--tls``."""
    if not options.tls:
        return {}
    from pravega_spark.standalone.certificates import service_certificate  # others do without its library

    files = service_certificate(folder.folder(TLS_FOLDER), options.public_host)
    return {
        "tls": {
            "certificate_file": str(files.certificate_file.resolve()),
            "key_file": str(files.key_file.resolve()),
            "ca_file": str(files.ca_file.resolve()),
        }
    }


def _file_url(folder: DataFolder, name: str) -> str:
    return f"file://{quote(str(folder.folder(name).resolve()))}"


def _endpoints(options: StandaloneOptions) -> dict[str, Any]:
    controllers = ",".join(f"{options.public_host}:{port}" for port in options.controller_ports)
    ca_file = {"ca_file": str(authority_file(options.data_dir))} if options.tls else {}
    return {
        "controller": controllers,
        "controller_uri": f"{'tls' if options.tls else 'tcp'}://{controllers}",
        **ca_file,
        "rest": f"{options.public_host}:{options.rest_port}",
        "metrics": [f"{options.public_host}:{port}/metrics" for port in (*options.rest_ports, *options.metrics_ports)],
        "segment_stores": [f"{options.public_host}:{port}" for port in options.store_ports],
        "data_dir": str(options.data_dir),
    }


def _print_ready(options: StandaloneOptions, servers: dict[str, Any]) -> None:
    # A path may have brackets, and is copied whole.
    console, endpoints = Console(markup=False, emoji=False, soft_wrap=True), _endpoints(options)
    console.print("pravega-spark is ready.", style="bold", end=" ")
    console.print(f"Data: {options.data_dir}")
    for name, value in {**endpoints, **servers}.items():
        console.print(f"  {name:<16} {', '.join(value) if isinstance(value, list) else value}")
    uri, ca_file = endpoints["controller_uri"], endpoints.get("ca_file")
    trust = f'.option("ca_file", "{ca_file}")' if ca_file else ""
    console.print(f'  in Spark: .format("pravega").option("controller", "{uri}"){trust}')
    if ca_file:
        console.print(f"  elsewhere: export PRAVEGA_CONTROLLER={uri} PRAVEGA_CA_FILE={ca_file}")
    console.print("  Ctrl-C stops everything cleanly.")
