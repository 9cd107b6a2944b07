"""Tokens: what they carry, which are believed, and until when."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import jwt
import pytest

from pravega_common.errors import AuthenticationFailed, TokenExpired
from pravega_common.resources import Permission, stream_resource
from pravega_common.services.security import delegation_tokens
from pravega_common.services.security.cluster_keys import ClusterKeys
from pravega_common.services.security.delegation_tokens import DelegationTokens, token_chars_max
from tests.support.fakes.clock import ManualClock
from tests.support.security import KEYS

STREAM = stream_resource("s", "t")
OTHER = ClusterKeys({"other": b"o" * 64})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def tokens(clock: ManualClock) -> DelegationTokens:
    return DelegationTokens(KEYS, clock, "controller")


def payload(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    assert not {"-", "_"} & set(part), "Pravega's Rust client does not read these"
    found: dict[str, Any] = json.loads(base64.b64decode(part + "=" * (-len(part) % 4)))
    return found


def forged(clock: ManualClock, key: bytes = KEYS.signing_key, algorithm: str = "HS512", **claims: Any) -> str:
    now_s = clock.wall_ms() // 1000
    body = {"sub": "x", "aud": "segmentstore", "exp": now_s + 60, "role": "internal", **claims}
    given = {name: value for name, value in body.items() if value is not None}
    return jwt.encode(given, key, algorithm, headers={"kid": "test"})


def test_a_token_carries_claims_as_pravegas_does(tokens: DelegationTokens, clock: ManualClock) -> None:
    token = tokens.sign("alice", {STREAM: Permission.READ_UPDATE, stream_resource("s", "u"): Permission.NONE})
    now_s = clock.wall_ms() // 1000
    assert payload(token) == {
        "sub": "alice",
        "aud": "segmentstore",
        "iat": now_s,
        "exp": now_s + 600,
        "prn::/scope:s/stream:t": "READ_UPDATE",
    }
    assert jwt.get_unverified_header(token) == {"alg": "HS512", "kid": "test", "typ": "JWT"}


def test_a_token_permits_what_it_names_and_no_more(tokens: DelegationTokens) -> None:
    reader = tokens.verify(tokens.sign("bob", {STREAM: Permission.READ}))
    assert reader.permits(STREAM, Permission.READ) and not reader.permits(STREAM, Permission.READ_UPDATE)
    assert not reader.permits(stream_resource("s", "other"), Permission.READ)
    assert not reader.is_internal and reader.subject == "bob"
    writer = tokens.verify(tokens.sign("eve", {STREAM: Permission.READ_UPDATE}))
    assert writer.permits(STREAM, Permission.READ)


def test_a_service_may_do_everything_and_renews_its_token(tokens: DelegationTokens, clock: ManualClock) -> None:
    first = tokens.internal()
    assert tokens.internal() is first
    found = tokens.verify(first)
    assert found.is_internal and found.permits("prn::/scope:any", Permission.READ_UPDATE)
    clock._now_s += 299
    assert tokens.internal() is first
    clock._now_s += 2
    second = tokens.internal()
    assert second != first and tokens.verify(second).expires_s == found.expires_s + 301


@pytest.mark.parametrize("step_ms", [3_600_000, 300_000, -3_600_000])
def test_a_token_of_a_service_is_renewed_after_a_step_of_the_clock(
    tokens: DelegationTokens, clock: ManualClock, step_ms: int
) -> None:
    """A machine that slept: its time of day went on, the time since its start stood still."""
    first = tokens.internal()
    clock._wall_offset_ms += step_ms
    second = tokens.internal()
    assert second != first and tokens.verify(second).expires_s == clock.wall_ms() // 1000 + 600
    assert tokens.internal() is second


def test_a_token_ends_after_its_life_and_the_skew(tokens: DelegationTokens, clock: ManualClock) -> None:
    token = tokens.internal()
    clock._now_s += 630
    tokens.verify(token)
    clock._now_s += 1
    for _ in range(2):
        with pytest.raises(TokenExpired) as raised:
            tokens.verify(token)
        assert token not in str(raised.value)


def test_keys_are_replaced_without_a_stop(clock: ManualClock) -> None:
    """Old, then old and new, then new and old, then new: neighbours in that order believe each other."""
    old, new = {"old": b"o" * 64}, {"new": b"n" * 64}
    steps = [DelegationTokens(ClusterKeys(keys), clock, "c") for keys in (old, old | new, new | old, new)]
    for earlier, later in itertools.pairwise(steps):
        assert later.verify(earlier.internal()).is_internal and earlier.verify(later.internal()).is_internal
    with pytest.raises(AuthenticationFailed):
        steps[3].verify(steps[0].internal())


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "elsewhere"},
        {"aud": None},
        {"sub": None},
        {"exp": None},
        {"exp": "never"},
        {"exp": True},
        {"exp": 1e300},
        {f"prn::/scope:s{number}": "READ" for number in range(65)},
    ],
    ids=str,
)
def test_claims_that_no_token_has_are_refused(
    tokens: DelegationTokens, clock: ManualClock, claims: dict[str, Any]
) -> None:
    assert tokens.verify(forged(clock)).is_internal, "the forgery is good but for the claims"
    with pytest.raises(AuthenticationFailed):
        tokens.verify(forged(clock, **claims))


@pytest.mark.parametrize("algorithm", ["HS256", "HS384"])
def test_another_algorithm_is_refused(tokens: DelegationTokens, clock: ManualClock, algorithm: str) -> None:
    with pytest.raises(AuthenticationFailed):
        tokens.verify(forged(clock, algorithm=algorithm))


def test_an_unsigned_a_foreign_and_a_changed_token_are_refused(tokens: DelegationTokens, clock: ManualClock) -> None:
    good = tokens.internal()
    head, body, signature = good.split(".")
    unsigned = jwt.encode({"sub": "x", "aud": "segmentstore", "exp": 2**40}, "", "none", headers={"kid": "test"})
    for token in (
        unsigned,
        forged(clock, key=b"x" * 64),
        DelegationTokens(OTHER, clock, "c").internal(),
        f"{head}.{body}.{signature[:-4]}AAAA",
        f"{head}.{body}.",
        f"{head}.{base64.urlsafe_b64encode(b'{}').decode()}.{signature}",
        "", ".", "..", "a.b.c", "\0", "Ü.Ü.Ü", "[" * 5_000, "x" * (token_chars_max + 1),
    ):  # fmt: skip
        with pytest.raises(AuthenticationFailed) as raised:
            tokens.verify(token)
        assert len(token) < 9 or token not in str(raised.value)


def test_what_is_remembered_is_bounded(tokens: DelegationTokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation_tokens, "verified_max", 3)
    made = [tokens.sign(f"u{number}", {STREAM: Permission.READ}) for number in range(10)]
    for token in made:
        tokens.verify(token)
    assert list(tokens._verified) == made[-3:]
    assert tokens.verify(made[0]).subject == "u0"
