"""The profile ``prod`` refuses what is insecure, and names everything that is missing at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller_service.config import ControllerConfig
from pravega_common.errors import ConfigurationError
from segment_service.config import SegmentStoreConfig

SECURE_BOTH: dict[str, Any] = {
    "security": {"profile": "prod", "cluster_key_file": "/k", "authentication": True},
    "tls": {"certificate_file": "/c", "key_file": "/k"},
    "cluster": {"cpo": "rediss://redis:6379"},
}
SECURE: dict[str, Any] = {**SECURE_BOTH, "tier1": {"servers": ("rediss://a:1", "rediss://b:1", "unix:/run/redis.sock")}}
OF_CONTROLLER = {**SECURE_BOTH, "security": {**SECURE_BOTH["security"], "password_file": "/u"}}


def problems_of(config: type[ControllerConfig | SegmentStoreConfig], values: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigurationError) as raised:
        config.from_values(values)
    return str(raised.value).splitlines()


def test_a_secure_service_starts() -> None:
    ControllerConfig.from_values(OF_CONTROLLER)
    SegmentStoreConfig.from_values(SECURE)
    for secure_url in ("https://s3/bucket", "file:///data", "hdfs://host:1/folder"):
        SegmentStoreConfig.from_values({**SECURE, "tier2": {"url": secure_url}})


def test_nothing_is_asked_for_outside_of_it() -> None:
    ControllerConfig.from_values({"cluster": {"allow_unsafe_redis": True}})
    SegmentStoreConfig.from_values({"tier1": {"allow_unsafe_redis": True}, "tier2": {"url": "memory:"}})


@pytest.mark.parametrize("config", [ControllerConfig, SegmentStoreConfig])
def test_all_that_is_missing_has_a_line(config: type[ControllerConfig | SegmentStoreConfig]) -> None:
    found = problems_of(config, {"security": {"profile": "prod"}})
    names = ["tls.certificate_file", "security.cluster_key_file", "security.authentication = true"]
    if config is ControllerConfig:
        names.insert(0, "security.password_file")
    names += ["TLS to Redis 127.0.0.1:6379"]
    for line, named in zip(found, names, strict=True):
        assert named in line


def test_users_are_missing_too() -> None:
    [line] = problems_of(ControllerConfig, SECURE_BOTH)
    assert "security.password_file" in line


@pytest.mark.parametrize(
    ("section", "values", "named"),
    [
        ("tier1", {"allow_unsafe_redis": True}, "tier1.allow_unsafe_redis"),
        ("tier2", {"url": "memory:"}, "tier2.url than memory"),
        ("tier2", {"url": "http://user:secret@s3/bucket"}, "tier2.url than http"),
    ],
)
def test_a_store_takes_no_place_that_loses_or_shows_data(section: str, values: dict[str, Any], named: str) -> None:
    lines = problems_of(SegmentStoreConfig, {**SECURE, section: {**SECURE.get(section, {}), **values}})
    assert any(named in line for line in lines)
    assert not any("secret" in line for line in lines)


def test_a_controller_takes_no_redis_that_loses_data() -> None:
    cluster = {**OF_CONTROLLER["cluster"], "allow_unsafe_redis": True}
    [line] = problems_of(ControllerConfig, {**OF_CONTROLLER, "cluster": cluster})
    assert "cluster.allow_unsafe_redis" in line


def test_every_redis_speaks_tls_or_is_reached_by_a_socket_of_the_machine() -> None:
    [line] = problems_of(ControllerConfig, {**OF_CONTROLLER, "cluster": {"cpo": "redis:6379"}})
    assert "TLS to Redis redis:6379" in line and "rediss://" in line
    servers = {"servers": ("rediss://a:1", "b:2", "127.0.0.1:3")}
    lines = problems_of(SegmentStoreConfig, {**SECURE, "tier1": servers})
    assert ["b:2" in line or "127.0.0.1:3" in line for line in lines] == [True, True]
    groups = {"groups": {"g": ("c:4", "rediss://d:5", "rediss://e:6")}}
    [line] = problems_of(SegmentStoreConfig, {**SECURE, "tier1": groups})
    assert "c:4" in line
    SegmentStoreConfig.from_values(
        {**SECURE, "tier1": {"url": "file:///log"}, "cluster": {"cpo": "file:///cluster/oracle.db"}}
    )


def test_authentication_needs_keys(tmp_path: Path) -> None:
    [line] = problems_of(SegmentStoreConfig, {"security": {"authentication": True}})
    assert "security.cluster_key_file" in line
