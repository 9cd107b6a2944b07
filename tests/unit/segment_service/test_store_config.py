"""Settings: the documented file is the default, and every mistake is named at once."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError
from segment_service.config import SegmentStoreConfig, load_config, make_config, redis_address
from tests.support.repository import ROOT

DOCUMENTED = ROOT / "conf" / "segment-store.toml"


def test_the_documented_file_lists_every_key_with_its_default() -> None:
    assert load_config(DOCUMENTED) == SegmentStoreConfig()
    documented = {(section, key) for section, keys in tomllib.loads(DOCUMENTED.read_text()).items() for key in keys}
    dumped = SegmentStoreConfig().model_dump()
    assert documented == {(section, key) for section, keys in dumped.items() for key in keys}


def test_all_mistakes_are_named_at_once() -> None:
    with pytest.raises(ConfigurationError) as raised:
        make_config(
            {
                "store": {"listen": "nowhere", "containers": 0, "typo": 1},
                "cluster": {"cpo": "http://localhost"},
                "tier1": {"servers": []},
                "extra": {},
            }
        )
    for part in (
        "store.listen",
        "'nowhere'",
        "store.containers",
        "store.typo",
        "cluster.cpo",
        "tier1.servers",
        "extra",
    ):
        assert part in str(raised.value)


def test_contradictions_are_named() -> None:
    with pytest.raises(ConfigurationError, match="two thirds"):
        make_config({"cache": {"bytes_max": 1_000_000}})
    with pytest.raises(ConfigurationError, match=r"set store\.published"):
        make_config({"store": {"listen": "0.0.0.0:12345"}})


def test_a_file_that_is_missing_or_no_toml(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_config(tmp_path / "missing.toml")
    (tmp_path / "bad.toml").write_text("[store")
    with pytest.raises(ConfigurationError, match="is not TOML"):
        load_config(tmp_path / "bad.toml")


def test_the_environment_overrides_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAVEGA_SEGMENT_STORE_TIER2__SECRET_KEY", "hidden")
    config = make_config({"tier2": {"secret_key": "in the file", "access_key": "key"}})
    assert config.tier2.secret_key.get_secret_value() == "hidden"
    assert config.tier2.access_key == "key"
    assert "hidden" not in repr(config) and "hidden" not in str(config.model_dump())


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://host:1234", "host:1234"),
        ("redis://host:1234/0", "host:1234"),
        ("redis://host", "host:6379"),
        ("host:1234", "host:1234"),
        ("unix:/run/redis.sock", "unix:/run/redis.sock"),
    ],
)
def test_redis_addresses(url: str, address: str) -> None:
    assert redis_address(url) == address


@pytest.mark.parametrize("url", ["redis://host/1", "rediss://host", "http://host:1", "redis://", "redis://host?x=1"])
def test_what_is_no_redis_address(url: str) -> None:
    with pytest.raises(ValueError, match="no Redis address"):
        redis_address(url)
