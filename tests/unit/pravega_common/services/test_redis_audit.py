"""Checks which Redis servers are refused, and what the refusal says."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from pravega_common.errors import ConfigurationError
from pravega_common.services.cluster.redis_audit import find_login_problems, find_problems, parse_info, refuse_unsafe

INFO = {"redis_version": "7.0.15", "role": "master", "cluster_enabled": "0"}
CONFIG = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
    "auto-aof-rewrite-min-size": str(1024**3),
}


def test_a_safe_server_has_no_problems() -> None:
    assert find_problems(INFO, CONFIG) == []
    assert find_problems({**INFO, "redis_version": "6.2.14"}, CONFIG) == []


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("appendonly", "no", "appendonly is no: .* set it to yes"),
        ("appendfsync", "everysec", "appendfsync is everysec: .* set it to always"),
        ("no-appendfsync-on-rewrite", "yes", "set it to no"),
        ("maxmemory-policy", "allkeys-lru", "would delete acknowledged data; set it to noeviction"),
        ("auto-aof-rewrite-min-size", "67108864", "auto-aof-rewrite-min-size is 67108864; set it to 1gb or more"),
    ],
)
def test_an_unsafe_setting_is_named_with_its_remedy(name: str, value: str, problem: str) -> None:
    problems = find_problems(INFO, {**CONFIG, name: value})
    assert len(problems) == 1
    with pytest.raises(ConfigurationError, match=problem):
        refuse_unsafe("host:1", problems, allow_unsafe=False)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("redis_version", "6.0.16", "version 6.0.16 is too old"),
        ("redis_version", "5.0", "version 5.0 is too old"),
        ("role", "slave", "connect to a server that is not a replica"),
        ("cluster_enabled", "1", "cluster mode"),
    ],
)
def test_an_unfit_server_is_refused(name: str, value: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        refuse_unsafe("host:1", find_problems({**INFO, name: value}, CONFIG), allow_unsafe=False)


def test_settings_that_cannot_be_read_are_unsafe() -> None:
    assert len(find_problems(INFO, {})) == 5


def test_allow_unsafe_only_warns() -> None:
    with capture_logs() as logged:
        refuse_unsafe("host:1", ["appendonly is no"], allow_unsafe=True)
    assert [entry["log_level"] for entry in logged if "UNSAFE REDIS" in entry["event"]] == ["warning"]


def test_info_is_parsed() -> None:
    assert parse_info("# Server\r\nredis_version:7.0.15\r\nos:Linux 6: x\r\n\r\n") == {
        "redis_version": "7.0.15",
        "os": "Linux 6: x",
    }


def default_user(commands: bytes, keys: bytes | list[bytes]) -> list[object]:
    """As Redis answers; 6.2 has a list of keys."""
    return [b"flags", [b"off"], b"passwords", [], b"commands", commands, b"keys", keys, b"channels", b"&*"]


@pytest.mark.parametrize("keys", [b"~*", [b"*"]])
@pytest.mark.parametrize("commands", [b"+@all", b"+@all -@dangerous"])
def test_a_default_user_that_may_replay_everything_is_safe(commands: bytes, keys: bytes | list[bytes]) -> None:
    assert find_login_problems(default_user(commands, keys)) == []


@pytest.mark.parametrize(
    ("commands", "keys"),
    [(b"-@all", b""), (b"+@all", b""), (b"-@all +@read", b"~*"), (b"+@all -xadd", b"~*"), (b"", []), (b"+@all", [])],
)
def test_a_default_user_that_may_not_is_named_with_the_remedy(commands: bytes, keys: bytes | list[bytes]) -> None:
    (problem,) = find_login_problems(default_user(commands, keys))
    assert "off resetpass ~* &* +@all" in problem


def test_a_default_user_that_cannot_be_looked_at_is_a_problem() -> None:
    assert "permit acl|getuser" in find_login_problems(None)[0]
