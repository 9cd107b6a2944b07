from __future__ import annotations

import tomllib

import pytest

from controller_service.config import ControllerConfig
from pravega_common.errors import ConfigurationError
from tests.support.repository import ROOT

DOCUMENTED = ROOT / "conf" / "controller.toml"


def test_the_documented_file_lists_every_key_with_its_default() -> None:
    documented = tomllib.loads(DOCUMENTED.read_text())
    assert ControllerConfig.load(DOCUMENTED) == ControllerConfig()
    assert {name: set(section) for name, section in documented.items()} == {
        name: set(section) for name, section in ControllerConfig().model_dump().items()
    }


def test_all_errors_are_named_at_once() -> None:
    with pytest.raises(ConfigurationError) as error:
        ControllerConfig.from_values(
            {
                "controller": {"listen": "nowhere", "containers": 0, "colour": "red"},
                "cluster": {"lease_ms": "soon"},
                "other": {},
            }
        )
    for name in ("controller.listen", "controller.containers", "controller.colour", "cluster.lease_ms", "other"):
        assert name in str(error.value)


def test_the_environment_takes_precedence_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAVEGA_CONTROLLER_CLUSTER__LEASE_MS", "5000")
    config = ControllerConfig.from_values({"cluster": {"lease_ms": 7000, "name": "mine"}})
    assert (config.cluster.lease_ms, config.cluster.name) == (5000, "mine")


@pytest.mark.parametrize("url", ["redis://cpo:6379/3", "redis://user:pw@cpo:6379/0", "cpo", "http://cpo:1"])
def test_addresses_of_an_oracle_that_are_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"cluster\.cpo"):
        ControllerConfig.from_values({"cluster": {"cpo": url}})
