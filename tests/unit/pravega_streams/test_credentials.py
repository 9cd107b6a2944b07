"""Credentials of a client and the tokens that it gets for them."""

from __future__ import annotations

import base64
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError
from pravega_common.resources import Permission
from pravega_streams.controller.address import ControllerAddress
from pravega_streams.controller.stream_tokens import StreamTokens
from pravega_streams.credentials import (
    BasicCredentials,
    PasswordFileCredentials,
    SharedCredentials,
    ShippedCredentials,
    TokenFileCredentials,
    credentials_from,
)
from tests.support.fakes.clock import ManualClock
from tests.support.security import tokens_of

SECRET = "planted-secret-33cd"
SEGMENT = "scope/stream/0.#epoch.0"


def test_the_environment_names_files(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\r\n")
    assert credentials_from({}) is None
    basic = credentials_from({"PRAVEGA_USER": "alice", "PRAVEGA_PASSWORD_FILE": str(file)})
    assert basic == PasswordFileCredentials("alice", file)
    assert basic is not None and basic.header() == BasicCredentials("alice", SECRET).header()
    assert base64.b64decode(basic.header().removeprefix("Basic ")).decode() == f"alice:{SECRET}"
    file.write_text("another")
    assert basic.header() == BasicCredentials("alice", "another").header()
    bearer = credentials_from({"PRAVEGA_TOKEN_FILE": str(file)})
    assert bearer == TokenFileCredentials(file) and bearer.header() == "Bearer another"
    for half in (
        {"PRAVEGA_USER": "alice"},
        {"PRAVEGA_PASSWORD_FILE": str(file)},
        {"PRAVEGA_TOKEN_FILE": str(file), "PRAVEGA_USER": "alice"},
    ):
        with pytest.raises(ConfigurationError):
            credentials_from(half)


def test_nothing_shows_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    named = PasswordFileCredentials("alice", file)
    assert SECRET not in f"{BasicCredentials('alice', SECRET)!r} {named!r} {pickle.dumps(named)!r}"
    for content in ("", f"{SECRET}\nsecond line", f"{SECRET}\0", SECRET * 1_000):
        file.write_text(content)
        with pytest.raises(ConfigurationError) as raised:
            named.header()
        assert SECRET not in str(raised.value)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        PasswordFileCredentials("alice", tmp_path / "missing").header()
    with pytest.raises(ConfigurationError):
        BasicCredentials("a:b", SECRET).header()


def test_what_is_shared_is_pickled_as_it_is_then(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("first")
    shared = SharedCredentials.of(TokenFileCredentials(file), "tls://one:9090")
    early: ShippedCredentials = pickle.loads(pickle.dumps(shared))
    file.write_text(SECRET)
    late: ShippedCredentials = pickle.loads(pickle.dumps(shared))
    assert (early.header(), shared.header()) == ("Bearer first", f"Bearer {SECRET}")
    assert early == late and hash(early) == hash(late)
    late.renew()
    assert early.header() == f"Bearer {SECRET}"
    assert SECRET not in f"{shared!r} {late!r} {replace(ControllerAddress.parse('tcp://one:9090'), credentials=late)!r}"
    file.unlink()
    with pytest.raises(ConfigurationError):
        SharedCredentials.of(TokenFileCredentials(file), "tls://one:9090")


def test_one_cluster_is_never_shown_the_credentials_for_another() -> None:
    """Though the user has the same name there."""
    pairs = [("tcp://one:9090", "first"), ("tcp://two:9090", "second")]
    shipped = [
        pickle.loads(pickle.dumps(SharedCredentials.of(BasicCredentials("alice", password), cluster)))
        for cluster, password in pairs
    ]
    for one in shipped:
        one.renew()
    assert [one.header() for one in shipped] == [BasicCredentials("alice", password).header() for _, password in pairs]


@pytest.mark.parametrize("ahead_s", [0, 86_400, -86_400])
def test_a_token_is_asked_for_once_and_renewed_at_half_of_its_life(ahead_s: int) -> None:
    """Also by a client whose machine has another time of day: it would ask for each call, or show what has ended."""
    clock = ManualClock()
    signing = tokens_of(clock)
    asked: list[tuple[str, str]] = []

    def ask(scope: str, stream: str) -> str:
        asked.append((scope, stream))
        return signing.sign("alice", {"prn::/scope:scope/stream:stream": Permission.READ})

    tokens = StreamTokens(ask, wall_s=lambda: clock.wall_ms() / 1000 + ahead_s, monotonic_s=clock.monotonic_s)
    assert tokens.known(SEGMENT) is None
    first = tokens.of_segment(SEGMENT)
    assert tokens.of_segment("scope/stream/7.#epoch.3") is first is tokens.known(SEGMENT)
    tokens.of_segment("scope/other_kvtable/0.#epoch.0")
    assert asked == [("scope", "stream"), ("scope", "other_kvtable")]
    clock._now_s += 299
    assert tokens.of_segment(SEGMENT) is first
    clock._now_s += 2
    assert tokens.of_segment(SEGMENT) != first
    tokens.forget(SEGMENT)
    assert tokens.known(SEGMENT) is None and len(asked) == 3


def test_a_client_without_credentials_asks_nobody() -> None:
    tokens = StreamTokens(lambda *_: pytest.fail("asked"), needed=False)
    assert tokens.of_segment(SEGMENT) == tokens.known(SEGMENT) == ""


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "a.e30.c", "a.eyJleHAiOiJ4In0.c"])
def test_a_token_that_does_not_say_its_end_is_shown_for_a_minute(token: str) -> None:
    now = [0.0]
    tokens = StreamTokens(lambda *_: token, monotonic_s=lambda: now[0])
    assert tokens.of_segment(SEGMENT) == token == tokens.known(SEGMENT)
    now[0] = 60.0
    assert tokens.known(SEGMENT) is None
