"""Settings: the documented file is the default, and every mistake is named at once."""

from __future__ import annotations

import tomllib

import pytest

from pravega_common.errors import ConfigurationError
from segment_service.config import SegmentStoreConfig
from tests.support.repository import ROOT

DOCUMENTED = ROOT / "conf" / "segment-store.toml"


def test_the_documented_file_lists_every_key_with_its_default() -> None:
    assert SegmentStoreConfig.load(DOCUMENTED) == SegmentStoreConfig()
    documented = {(section, key) for section, keys in tomllib.loads(DOCUMENTED.read_text()).items() for key in keys}
    dumped = SegmentStoreConfig().model_dump()
    assert documented == {(section, key) for section, keys in dumped.items() for key in keys}


def test_all_mistakes_are_named_at_once() -> None:
    with pytest.raises(ConfigurationError) as raised:
        SegmentStoreConfig.from_values(
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
        SegmentStoreConfig.from_values({"cache": {"bytes_max": 1_000_000}})
    with pytest.raises(ConfigurationError, match=r"set store\.published"):
        SegmentStoreConfig.from_values({"store": {"listen": "0.0.0.0:12345"}})


def test_the_environment_overrides_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAVEGA_SEGMENT_STORE_TIER2__SECRET_KEY", "hidden")
    config = SegmentStoreConfig.from_values({"tier2": {"secret_key": "in the file", "access_key": "key"}})
    assert config.tier2.secret_key.get_secret_value() == "hidden"
    assert config.tier2.access_key == "key"
    assert "hidden" not in repr(config) and "hidden" not in str(config.model_dump())
