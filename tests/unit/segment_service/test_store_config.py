"""Settings: the documented file is the default, and every mistake is named at once."""

from __future__ import annotations

import tomllib

import pytest

from pravega_common.errors import ConfigurationError
from pravega_common.services.cache_size import cache_bytes_default, cache_bytes_least
from pravega_common.services.cluster.cpo import PersistenceGroup
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


def test_the_cache_is_sized_by_the_memory_of_the_machine() -> None:
    gib = 1 << 30
    assert [cache_bytes_default(stores, 64 * gib) for stores in (1, 2, 64)] == [8 * gib, 4 * gib, cache_bytes_least]
    assert cache_bytes_default(1, gib) == cache_bytes_least
    assert SegmentStoreConfig().cache.memory_bytes_max == cache_bytes_default()
    assert SegmentStoreConfig.from_values({"cache": {"bytes_max": 3 * gib}}).cache.memory_bytes_max == 3 * gib


def test_groups_are_named_or_one() -> None:
    default = SegmentStoreConfig().tier1.persistence_groups
    assert default == (PersistenceGroup("group-0", ("127.0.0.1:6379",)),)
    groups = {"b": ["h:4"], "a": ["h:1", "h:2", "redis://h:3"]}
    config = SegmentStoreConfig.from_values({"tier1": {"groups": groups}})
    assert config.tier1.persistence_groups == (
        PersistenceGroup("a", ("h:1", "h:2", "h:3")),
        PersistenceGroup("b", ("h:4",)),
    )


@pytest.mark.parametrize(
    ("tier1", "text"),
    [
        ({"servers": ["h:1"], "groups": {"a": ["h:2"]}}, "set one of them"),
        ({"servers": ["h:1", "h:2"]}, "group-0 has 2 servers: use 1 or 3"),
        ({"groups": {"a": []}}, "a has 0 servers"),
        ({"servers": ["h:1", "h:1", "h:2"]}, "h:1 is listed 2 times"),
        ({"groups": {"a": ["h:1"], "b": ["redis://h:1/0"]}}, "listed 2 times, in a, b"),
        ({"groups": {"a/b": ["h:1"]}}, "'a/b': 1 to 64 printable characters without /"),
    ],
)
def test_groups_that_cannot_hold_plogs_are_refused(tier1: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        SegmentStoreConfig.from_values({"tier1": tier1})


def test_the_environment_overrides_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAVEGA_SEGMENT_STORE_TIER2__SECRET_KEY", "hidden")
    config = SegmentStoreConfig.from_values({"tier2": {"secret_key": "in the file", "access_key": "key"}})
    assert config.tier2.secret_key.get_secret_value() == "hidden"
    assert config.tier2.access_key == "key"
    assert "hidden" not in repr(config) and "hidden" not in str(config.model_dump())


@pytest.mark.parametrize(
    ("tier2", "text"),
    [
        ({"url": "http://minio:9000/bucket"}, "for all to read; use https, or set tier2.allow_plaintext"),
        ({"url": "http://10.0.0.7:9000/bucket"}, "for all to read"),
        ({"url": "http://127.0.0.1.example/bucket"}, "for all to read"),
        ({"url": "memory:"}, "is cut off Tier 1"),
        ({"access_key": "key"}, "set both, or none"),
        ({"secret_key": "planted"}, "set both, or none"),
        ({"session_token": "planted"}, "goes with tier2.access_key"),
    ],
)
def test_a_tier2_that_cannot_be_trusted_is_refused(tier2: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text) as raised:
        SegmentStoreConfig.from_values({"tier2": tier2})
    assert "planted" not in str(raised.value)


@pytest.mark.parametrize(
    "tier2",
    [
        {"url": "http://127.0.0.1:9000/bucket"},
        {"url": "http://[::1]:9000/bucket"},
        {"url": "http://localhost/bucket"},
        {"url": "https://minio:9000/bucket"},
        {"url": "http://minio:9000/bucket", "allow_plaintext": True},
    ],
)
def test_a_tier2_that_is_near_or_encrypted_is_taken(tier2: dict[str, object]) -> None:
    assert SegmentStoreConfig.from_values({"tier2": tier2}).tier2.url == tier2["url"]
