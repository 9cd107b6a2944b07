from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError
from pydantic_settings import SettingsConfigDict

from pravega_common.errors import ConfigurationError
from pravega_common.services.settings import (
    ClusterSection,
    Section,
    ServiceSettings,
    host_and_port,
    redis_address,
)


class DiskSection(Section):
    folders: tuple[str, ...] = ("a",)
    password: SecretStr = SecretStr("")


class Settings(ServiceSettings):
    model_config = SettingsConfigDict(env_prefix="PRAVEGA_TEST_")

    cluster: ClusterSection = ClusterSection()
    disk: DiskSection = DiskSection()


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"absent\.toml: cannot be read"):
        Settings.load(tmp_path / "absent.toml")
    bad = tmp_path / "bad.toml"
    bad.write_text("not toml")
    with pytest.raises(ConfigurationError, match=r"bad\.toml: is not TOML"):
        Settings.load(bad)


def test_all_mistakes_are_named_at_once_with_file_key_and_value(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('[cluster]\nlease_ms = "soon"\ncpo = "http://h"\nnme = "x"\n[disc]\n')
    with pytest.raises(ConfigurationError) as raised:
        Settings.load(file)
    lines = str(raised.value).splitlines()
    assert len(lines) == 4
    assert all(line.startswith(f"{file}: ") for line in lines)
    assert any("cluster.lease_ms = 'soon': " in line for line in lines)
    assert any("cluster.cpo = 'http://h': " in line for line in lines)
    assert f"{file}: cluster.nme: no such setting" in lines
    assert f"{file}: disc: no such setting" in lines


def test_a_secret_is_never_shown() -> None:
    with pytest.raises(ConfigurationError, match=r"disk\.password: ") as raised:
        Settings.from_values({"disk": {"password": 12345}})
    assert "12345" not in str(raised.value)
    assert raised.value.__suppress_context__


def test_the_environment_takes_precedence_key_by_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAVEGA_TEST_CLUSTER__LEASE_MS", "5000")
    settings = Settings.from_values({"cluster": {"lease_ms": 7000, "name": "mine"}})
    assert (settings.cluster.lease_ms, settings.cluster.name) == (5000, "mine")


def test_a_mistake_in_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAVEGA_TEST_DISK__FOLDERS", "not json")
    with pytest.raises(ConfigurationError) as raised:
        Settings.from_values({})
    assert str(raised.value) == (
        "environment: PRAVEGA_TEST_DISK__FOLDERS: is no JSON (Expecting value: line 1 column 1 (char 0)); "
        'write a list as ["a", "b"] and a table as {"a": "b"}'
    )


@pytest.mark.parametrize(
    ("variable", "value", "mistake"),
    [
        ("PRAVEGA_TEST_CLUSTER__LEASE_MS", "soon", "cluster.lease_ms = 'soon': "),
        ("pravega_test_cluster__nme", "x", "cluster.nme: no such setting"),
        ("PRAVEGA_TEST_CLUSTER", '{"lease_ms": 1}', "cluster.lease_ms = 1: "),
    ],
)
def test_a_mistake_in_a_variable_is_not_said_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, mistake: str
) -> None:
    file = tmp_path / "s.toml"
    file.write_text("[cluster]\nlease_ms = 5000\n[disk]\nfolders = 1\n")
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError) as raised:
        Settings.load(file)
    lines = sorted(str(raised.value).splitlines())
    assert lines[0].startswith(f"{file}: disk.folders = 1: ")
    assert lines[1].startswith(f"environment: {variable.upper()}: {mistake}")


def test_true_is_no_number() -> None:
    with pytest.raises(ConfigurationError, match=r"cluster\.lease_ms = True: Value error, true is no whole number$"):
        Settings.from_values({"cluster": {"lease_ms": True}})


def test_settings_cannot_be_changed() -> None:
    settings = Settings.from_values({})
    with pytest.raises(ValidationError):
        settings.cluster.name = "other"
    with pytest.raises(ValidationError):
        settings.cluster = ClusterSection()


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://127.0.0.1:6379/0", "127.0.0.1:6379"),
        ("redis://cpo:1", "cpo:1"),
        ("redis://host:1234/0", "host:1234"),
        ("redis://host", "host:6379"),
        ("rediss://host:1234/0", "rediss://host:1234"),
        ("rediss://host", "rediss://host:6379"),
        ("cpo:1", "cpo:1"),
        ("unix:/run/redis.sock", "unix:/run/redis.sock"),
    ],
)
def test_redis_addresses(url: str, address: str) -> None:
    assert redis_address(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "redis://host/1",
        "redis://cpo:6379/3",
        "http://host:1",
        "redis://",
        "redis://host?x=1",
        "cpo",
        "host:70000",
    ],
)
def test_addresses_that_are_no_redis_address(url: str) -> None:
    with pytest.raises(ValueError, match=r"Redis address|Port out of range"):
        redis_address(url)


def test_addresses_are_split() -> None:
    assert host_and_port("[::1]:90") == ("::1", 90)
    assert host_and_port("host:0") == ("host", 0)


@pytest.mark.parametrize("address", ["nowhere", ":1", "host:", "host:70000", "ho st:1", "host:x"])
def test_addresses_that_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match="no address"):
        host_and_port(address)


def test_a_variable_that_sets_nothing_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAVEGA_TEST_CLUSTR__LEASE_MS", "5000")
    monkeypatch.setenv("PRAVEGA_TEST_CLUSTER_LEASE_MS", "5000")
    with pytest.raises(ConfigurationError) as raised:
        Settings.from_values({})
    assert str(raised.value).splitlines() == [
        "environment: PRAVEGA_TEST_CLUSTER_LEASE_MS: no such setting; PRAVEGA_TEST_CLUSTER__LEASE_MS is one",
        "environment: PRAVEGA_TEST_CLUSTR__LEASE_MS: no such section; there are cluster, disk",
    ]


def test_variables_of_other_programs_are_let_be(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "PRAVEGA_TEST_PORT",
        "PRAVEGA_TEST_SERVICE_HOST",
        "PRAVEGA_TEST_PORT_9090_TCP_ADDR",
        "PRAVEGA_TESTS__A",
    ):
        monkeypatch.setenv(name, "tcp://10.0.0.1:9090")
    assert Settings.from_values({}).cluster.lease_ms == 10_000
