"""Describes the child processes of the controller and the segment stores, and writes their settings files."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pravega_spark.standalone.options import StandaloneOptions
from pravega_spark.standalone.redis_and_minio import accepts_connections
from pravega_spark.standalone.supervisor import ChildSpec

Section = Mapping[str, str | int | bool | list[str]]
cluster_name: Final = "pravega-spark"


def segment_store_spec(
    options: StandaloneOptions, index: int, cpo_url: str, common: Mapping[str, Section], conf: Path, logs: Path
) -> ChildSpec:
    name, port = f"segment-store-{index}", options.store_ports[index]
    settings: dict[str, Section] = {
        "store": {"id": name, "listen": f"{options.host}:{port}", "containers": options.containers},
        "cluster": {"name": cluster_name, "cpo": cpo_url},
        **common,
    }
    if options.cache_folder is not None:
        cache: dict[str, str | int | bool | list[str]] = {"disk_folder": str(options.cache_folder.resolve() / name)}
        if options.cache_mib:
            cache["disk_bytes_max"] = options.cache_mib << 20
        settings["cache"] = cache
    file = write_settings(conf / f"{name}.toml", settings)
    return _spec(name, "segment_service", file, logs, options.host, port)


def controller_name(index: int) -> str:
    """Returns the name of a controller's process: ``controller``, ``controller-1`` …"""
    return f"controller-{index}" if index else "controller"


def controller_spec(
    options: StandaloneOptions, index: int, cpo_url: str, common: Mapping[str, Section], conf: Path, logs: Path
) -> ChildSpec:
    name, host, port = controller_name(index), options.host, options.controller_ports[index]
    settings: dict[str, Section] = {
        "controller": {
            "listen": f"{host}:{port}",
            "rest": f"{host}:{options.rest_ports[index]}",
            "containers": options.containers,
        },
        "cluster": {"name": cluster_name, "cpo": cpo_url},
        **common,
    }
    file = write_settings(conf / f"{name}.toml", settings)
    return _spec(name, "controller_service", file, logs, host, port)


def write_settings(file: Path, sections: Mapping[str, Section]) -> Path:
    """Writes TOML. The values used here look as in JSON; only the owner may read the file, which may hold a secret."""
    lines = [
        line
        for section, values in sections.items()
        for line in (f"[{section}]", *(f"{name} = {json.dumps(value)}" for name, value in values.items()), "")
    ]
    file.touch(mode=0o600)
    file.write_text("\n".join(lines))
    return file


def _spec(name: str, package: str, file: Path, logs: Path, host: str, port: int) -> ChildSpec:
    command = [sys.executable, "-m", package, "--config", str(file)]
    return ChildSpec(name, command, logs / f"{name}.log", lambda: accepts_connections(host, port))
