"""Encodes and checks the values that all implementations of the control plane oracle share."""

from __future__ import annotations

import json
from typing import Any

from pravega_common.errors import DataCorruption, InvalidArgument, VersionConflict
from pravega_common.services.cluster.cpo import PersistenceCluster, PersistenceGroup, name_chars_max, payload_bytes_max
from pravega_common.services.settings import lease_ms_max


def checked_name(what: str, value: str) -> str:
    """``value`` if it may name a key, kind, role, member, task or lock."""
    if not 0 < len(value) <= name_chars_max or not value.isprintable():
        raise InvalidArgument(f"{what} {value[:80]!r}: 1 to {name_chars_max} printable characters are allowed")
    return value


def checked_ttl_ms(ttl_ms: int) -> int:
    if not 0 < ttl_ms <= lease_ms_max:
        raise InvalidArgument(f"a lease of {ttl_ms} ms: it must be above 0, and {lease_ms_max} at most")
    return ttl_ms


def payload_to_json(payload: dict[str, Any]) -> str:
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"))
    return checked_value(text)


def checked_value(text: str) -> str:
    size = len(text.encode())
    if size > payload_bytes_max:
        raise InvalidArgument(f"a value of {size} bytes; {payload_bytes_max} are allowed")
    return text


def cluster_to_json(cluster: PersistenceCluster) -> str:
    checked_name("persistence cluster", cluster.name)
    if not cluster.groups or any(not group.servers for group in cluster.groups):
        raise InvalidArgument(f"persistence cluster {cluster.name} needs at least one group with at least one server")
    groups = {group.name: group.servers for group in cluster.groups}
    if len(groups) != len(cluster.groups):
        raise InvalidArgument(f"persistence cluster {cluster.name} has two groups of one name")
    return payload_to_json({"name": cluster.name, "version": cluster.version, "groups": groups})


def cluster_from_json(text: str | bytes) -> PersistenceCluster:
    """The cluster in ``text``. A record without a version, as 0.1.0 made it, has version 1."""
    try:
        record = json.loads(text)
        groups = tuple(PersistenceGroup(name, tuple(servers)) for name, servers in sorted(record["groups"].items()))
        return PersistenceCluster(record["name"], groups, int(record.get("version", 1)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataCorruption(f"persistence cluster {text[:100]!r} cannot be read: {error!r}") from error


def replaced_cluster(registered: PersistenceCluster | None, cluster: PersistenceCluster) -> PersistenceCluster:
    """The record that follows ``registered``: that one itself if it has these groups, else ``cluster`` at the next
    version. ``VersionConflict`` unless ``cluster`` has the version of ``registered``."""
    if registered is not None and {*registered.groups} == {*cluster.groups}:
        return registered
    version = 0 if registered is None else registered.version
    if cluster.version != version:
        raise VersionConflict(f"persistence cluster {cluster.name} is at version {version}, not at {cluster.version}")
    return PersistenceCluster(cluster.name, tuple(sorted(cluster.groups, key=lambda group: group.name)), version + 1)
