"""The profile ``prod`` refuses what is insecure, and names everything that is missing at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controller_service.config import ControllerConfig
from pravega_common.errors import ConfigurationError
from segment_service.config import SegmentStoreConfig

SECURE: dict[str, Any] = {
    "security": {"profile": "prod", "cluster_key_file": "/k", "authentication": True},
    "tls": {"certificate_file": "/c", "key_file": "/k"},
}
OF_CONTROLLER = {**SECURE, "security": {**SECURE["security"], "password_file": "/u"}}


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
    for line, named in zip(found, names, strict=True):
        assert named in line


def test_users_are_missing_too() -> None:
    [line] = problems_of(ControllerConfig, SECURE)
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
    lines = problems_of(SegmentStoreConfig, {**SECURE, section: values})
    assert any(named in line for line in lines)
    assert not any("secret" in line for line in lines)


def test_a_controller_takes_no_redis_that_loses_data() -> None:
    [line] = problems_of(ControllerConfig, {**OF_CONTROLLER, "cluster": {"allow_unsafe_redis": True}})
    assert "cluster.allow_unsafe_redis" in line


def test_authentication_needs_keys(tmp_path: Path) -> None:
    [line] = problems_of(SegmentStoreConfig, {"security": {"authentication": True}})
    assert "security.cluster_key_file" in line
