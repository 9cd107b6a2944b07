"""Describes the child processes of the controller and the segment stores, and writes their settings files."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pravega_common.services.cache_size import cache_bytes_default
from pravega_common.services.security.cluster_keys import make_key_file
from pravega_spark.standalone.liveness import LivenessProbe
from pravega_spark.standalone.options import StandaloneOptions, authority_file
from pravega_spark.standalone.redis_and_minio import accepts_connections
from pravega_spark.standalone.supervisor import ChildSpec

Section = Mapping[str, str | int | bool | list[str]]
cluster_name: Final = "pravega-spark"


def shared_sections(cpo_url: str, key_file: Path) -> Mapping[str, Section]:
    """Returns the sections that all services of the cluster have; the file with its key is made if it is not there."""
    make_key_file(key_file)
    return {
        "cluster": {"name": cluster_name, "cpo": cpo_url},
        "security": {"cluster_key_file": str(key_file.resolve())},
    }


def store_name(index: int) -> str:
    """Returns the name of a segment store's process, which is its id as well."""
    return f"segment-store-{index}"


def segment_store_spec(
    options: StandaloneOptions,
    index: int,
    shared: Mapping[str, Section],
    tiers: Mapping[str, Section],
    conf: Path,
    logs: Path,
) -> ChildSpec:
    name, port = store_name(index), options.store_ports[index]
    metrics_port = options.metrics_ports[index]
    settings: dict[str, Section] = {
        "store": {
            "id": name,
            "listen": f"{options.host}:{port}",
            "published": f"{options.public_host}:{port}",
            "metrics": f"{options.host}:{metrics_port}",
            "containers": options.containers,
        },
        **shared,
        **tiers,
        "log": _log_section(options),
    }
    cache: dict[str, str | int | bool | list[str]] = {"bytes_max": cache_bytes_default(options.segment_stores)}
    if options.cache_folder is not None:
        cache["disk_folder"] = str(options.cache_folder.resolve() / name)
        if options.cache_mib:
            cache["disk_bytes_max"] = options.cache_mib << 20
    settings["cache"] = cache
    file = write_settings(conf / f"{name}.toml", settings)
    return _spec(name, "segment_service", file, logs, port, _liveness(options, metrics_port, "/health/live"))


def controller_name(index: int) -> str:
    """Returns the name of a controller's process: ``controller``, ``controller-1`` …"""
    return f"controller-{index}" if index else "controller"


def controller_spec(
    options: StandaloneOptions, index: int, shared: Mapping[str, Section], conf: Path, logs: Path
) -> ChildSpec:
    name, host, port = controller_name(index), options.host, options.controller_ports[index]
    settings: dict[str, Section] = {
        "controller": {
            "listen": f"{host}:{port}",
            "published": f"{options.public_host}:{port}",
            "rest": f"{host}:{options.rest_ports[index]}",
            "containers": options.containers,
        },
        **shared,
        "log": {**_log_section(options), "audit_file": str((logs / f"audit-{name}.jsonl").resolve())},
    }
    file = write_settings(conf / f"{name}.toml", settings)
    probe = _liveness(options, options.rest_ports[index], "/v1/health/liveness")
    return _spec(name, "controller_service", file, logs, port, probe)


def write_settings(file: Path, sections: Mapping[str, Section]) -> Path:
    """Writes TOML. The values used here look as in JSON, but for surrogates, which TOML has not; only the owner may
    read the file, which may hold a secret."""
    lines = []
    for section, values in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]
        lines.append("")
    file.touch(mode=0o600)
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def _log_section(options: StandaloneOptions) -> Section:
    return {"level": str(options.log_level), "format": str(options.log_format)}


def _liveness(options: StandaloneOptions, port: int, path: str) -> LivenessProbe:
    return LivenessProbe(options.local_host, port, path, authority_file(options.data_dir) if options.tls else None)


def _spec(name: str, package: str, file: Path, logs: Path, port: int, liveness: LivenessProbe) -> ChildSpec:
    command = [sys.executable, "-m", package, "--config", str(file)]
    return ChildSpec(
        name,
        command,
        logs / f"{name}.log",
        lambda: accepts_connections(liveness.host, port),
        is_alive=liveness.is_alive,
    )
