"""Reads the login of Redis servers, and shows its password nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError
from pravega_common.services.redis_access import RedisEndpoint, RedisSection
from pravega_common.services.settings import redis_address
from segment_service.config import SegmentStoreConfig

SECRET = "planted secret/with@signs"


def test_the_password_comes_from_a_file_or_from_a_setting(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.touch(mode=0o600)
    file.write_text(f"{SECRET}\n")
    assert RedisSection(password_file=str(file)).access().credentials == (SECRET,)
    assert RedisSection(username="u", password_file=str(file)).access().credentials == ("u", SECRET)
    assert RedisSection(username="u", password=SECRET).access().credentials == ("u", SECRET)  # type: ignore[arg-type]
    assert RedisSection().access().credentials == ()


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    file = tmp_path / "password"
    with pytest.raises(ConfigurationError, match="No such file"):
        RedisSection(password_file=str(file)).access()
    file.write_text(SECRET)
    file.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600") as refused:
        RedisSection(password_file=str(file)).access()
    assert SECRET not in str(refused.value)
    file.chmod(0o600)
    file.write_text("\n")
    with pytest.raises(ConfigurationError, match="is empty"):
        RedisSection(password_file=str(file)).access()


def test_settings_that_contradict_each_other() -> None:
    assert RedisSection().problems() == []
    both = RedisSection(password="p", password_file="f")  # type: ignore[arg-type]
    assert both.problems() == ["redis.password and redis.password_file: set one of them"]
    assert "without a password" in RedisSection(username="u").problems()[0]


def test_the_password_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAVEGA_SEGMENT_STORE_REDIS__PASSWORD", SECRET)
    config = SegmentStoreConfig.from_values({})
    assert config.redis.access().credentials == (SECRET,)
    assert SECRET not in f"{config} {config!r} {config.model_dump()} {config.redis.access()!r}"


@pytest.mark.parametrize("url", [f"redis://user:{SECRET}@host:1", f"rediss://:{SECRET}@host", f"user:{SECRET}@host:1"])
def test_a_password_in_an_address_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match=r"redis\.password_file") as refused:
        redis_address(url)
    assert "planted" not in str(refused.value) and "signs" not in str(refused.value).replace("@signs", "")
    for section in ({"tier1": {"servers": [url]}}, {"cluster": {"cpo": url}}):
        with pytest.raises(ConfigurationError, match=r"redis\.password_file") as error:
            SegmentStoreConfig.from_values(section)
        said = f"{error.value} {error.value.__cause__} {error.value.__context__}"
        assert "planted" not in said and "signs@" not in said


def test_addresses_with_and_without_tls() -> None:
    assert RedisEndpoint.parse("rediss://host:1") == RedisEndpoint("host", 1, True)
    assert RedisEndpoint.parse("host:1") == RedisEndpoint("host", 1, False)
