from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from controller_service.config import ControllerConfig, config_of, load_config, redis_address, split_address
from pravega_common.errors import ConfigurationError
from tests.support.repository import ROOT

DOCUMENTED = ROOT / "conf" / "controller.toml"


def test_the_documented_file_lists_every_key_with_its_default() -> None:
    documented = tomllib.loads(DOCUMENTED.read_text())
    assert load_config(DOCUMENTED) == ControllerConfig()
    assert {name: set(section) for name, section in documented.items()} == {
        name: set(section) for name, section in ControllerConfig().model_dump().items()
    }


def test_all_errors_are_named_at_once() -> None:
    with pytest.raises(ConfigurationError) as error:
        config_of(
            {
                "controller": {"listen": "nowhere", "containers": 0, "colour": "red"},
                "cluster": {"lease_ms": "soon"},
                "other": {},
            }
        )
    for name in ("controller.listen", "controller.containers", "controller.colour", "cluster.lease_ms", "other"):
        assert name in str(error.value)


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"absent\.toml"):
        load_config(tmp_path / "absent.toml")
    bad = tmp_path / "bad.toml"
    bad.write_text("not toml")
    with pytest.raises(ConfigurationError, match=r"bad\.toml"):
        load_config(bad)


def test_the_environment_goes_before_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAVEGA_CONTROLLER_CLUSTER__LEASE_MS", "5000")
    config = config_of({"cluster": {"lease_ms": 7000, "name": "mine"}})
    assert (config.cluster.lease_ms, config.cluster.name) == (5000, "mine")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://127.0.0.1:6379/0", "127.0.0.1:6379"),
        ("redis://cpo:1", "cpo:1"),
        ("cpo:1", "cpo:1"),
        ("unix:/run/redis.sock", "unix:/run/redis.sock"),
    ],
)
def test_addresses_of_the_oracle(url: str, address: str) -> None:
    assert redis_address(url) == address


@pytest.mark.parametrize("url", ["redis://cpo:6379/3", "redis://user:pw@cpo:6379/0", "cpo", "http://cpo:1"])
def test_addresses_that_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"cluster\.cpo"):
        redis_address(url)


def test_addresses_are_split() -> None:
    assert split_address("[::1]:90") == ("::1", 90)
    assert split_address("host:0") == ("host", 0)
