"""Bearer tokens of an identity provider: good, forged, ended and foreign ones, and the rotation of its keys."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from pravega_common.errors import AuthenticationFailed, ConfigurationError, Unavailable
from pravega_common.resources import Permission
from pravega_common.services.security.access_entries import AccessEntries
from pravega_common.services.security.authentication import PasswordAuthentication
from pravega_common.services.security.bearer_tokens import (
    BearerAuthentication,
    SchemeAuthentication,
    TokenRules,
    remembered_max,
    skew_s,
    token_chars_max,
)
from pravega_common.services.security.json_web_keys import (
    JsonWebKeys,
    document_bytes_max,
    keys_max,
    open_keys,
    parse_keys,
    refresh_period_s,
    unknown_key_pause_s,
    unread_max_s,
)
from pravega_common.services.security.password_file import HashedPassword, User, write_users
from tests.support.certificates import Authority
from tests.support.fakes.clock import ManualClock
from tests.support.identity_provider import AUDIENCE, ISSUER, IdentityProvider

RULES = TokenRules(ISSUER, AUDIENCE)
ENTRIES = "prn::/scope:s/stream:t,READ"


class Published:
    """A JWKS that counts how often it was read, and may fail."""

    def __init__(self, provider: IdentityProvider) -> None:
        self.provider = provider
        self.looks = 0
        self.failure: Exception | None = None

    async def read(self) -> bytes:
        self.looks += 1
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        return self.provider.document


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def provider() -> IdentityProvider:
    return IdentityProvider()


@pytest.fixture
def published(provider: IdentityProvider) -> Published:
    return Published(provider)


@pytest.fixture
def bearer(published: Published, clock: ManualClock) -> BearerAuthentication:
    return BearerAuthentication(JsonWebKeys(published.read, "test", clock), RULES, clock)


def now_s(clock: ManualClock) -> float:
    return clock.wall_ms() / 1000


async def refused(bearer: BearerAuthentication, token: str) -> str:
    with pytest.raises(AuthenticationFailed) as raised:
        await bearer.principal(f"Bearer {token}")
    assert token[:20] not in str(raised.value) or not token
    return str(raised.value)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_a_good_token_says_who_and_what(
    bearer: BearerAuthentication, provider: IdentityProvider, clock: ManualClock, algorithm: str
) -> None:
    for entries in (ENTRIES, [ENTRIES], [ENTRIES, "prn::/scope:other,READ"]):
        token = provider.token(now_s(clock), algorithm, pravega_access=entries)
        for scheme in ("Bearer", "bearer"):
            found = await bearer.principal(f"{scheme} {token}")
            assert found.name == "alice"
            assert found.entries.permits("prn::/scope:s/stream:t", Permission.READ)
            assert not found.entries.permits("prn::/scope:s/stream:t", Permission.READ_UPDATE)
    assert (await bearer.principal(f"Bearer {provider.token(now_s(clock))}")).entries == AccessEntries.parse("")


async def test_claims_that_are_missing_or_wrong(
    bearer: BearerAuthentication, provider: IdentityProvider, clock: ManualClock
) -> None:
    now = int(now_s(clock))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"iss": "https://other"}, "another identity provider"),
        ({"aud": "other"}, "another service"),
        ({"exp": now - skew_s - 1}, "has ended"),
        ({"nbf": now + skew_s + 1}, "not valid yet"),
        ({"pravega_access": "prn::*,EVERYTHING"}, "access entry"),
        *(({name: None}, "malformed") for name in ("exp", "sub")),
        *(
            ({name: value}, "malformed")
            for name, value in (("exp", "soon"), ("exp", True), ("sub", ""), ("sub", "a\n"))
        ),
        ({"pravega_access": [1]}, "malformed"),
    ]
    for claims, reason in wrong:
        assert reason in await refused(bearer, provider.token(now, **claims)), claims
    for name in ("iss", "aud"):
        await refused(bearer, provider.token(now, **{name: None}))
    assert (await bearer.principal(f"Bearer {provider.token(now, nbf=now + 5, aud=['x', AUDIENCE])}")).name == "alice"


async def test_forged_tokens(bearer: BearerAuthentication, provider: IdentityProvider, clock: ManualClock) -> None:
    good = provider.token(now_s(clock), "RS256")
    head, body, signature = good.split(".")
    claims = jwt.decode(good, options={"verify_signature": False})
    public = provider.keys["RS256"][1].public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    # The public key as the secret of an HMAC; PyJWT itself refuses to sign so.
    confused = jwt.api_jws.PyJWS()
    header = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": "RS256"}).encode()).rstrip(b"=").decode()
    mac = confused.get_algorithm_by_name("HS256").sign(f"{header}.{body}".encode(), pem)
    stranger = IdentityProvider()
    forged = [
        "",
        "x",
        "a.b.c",
        f"{head}.{body}.",
        f"{head}.{body}.{signature[:-6]}AAAAAA",
        f"{header}.{body}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}",
        jwt.encode(claims, "", "none", headers={"kid": "RS256"}),
        jwt.encode(claims, provider.keys["RS256"][1], "RS512", headers={"kid": "RS256"}),
        jwt.encode(claims, provider.keys["RS256"][1], "RS256"),
        stranger.token(now_s(clock)),
        "x" * (token_chars_max + 1),
    ]
    for token in forged:
        await refused(bearer, token)
    assert (await bearer.principal(f"Bearer {good}")).name == "alice"


async def test_a_token_ends_also_when_it_is_remembered(
    bearer: BearerAuthentication, provider: IdentityProvider, clock: ManualClock
) -> None:
    token = provider.token(now_s(clock))
    await bearer.principal(f"Bearer {token}")
    await clock.advance(600 + skew_s - 1)
    await bearer.principal(f"Bearer {token}")
    await clock.advance(2)
    assert "has ended" in await refused(bearer, token)


async def test_what_is_remembered_is_bounded(
    bearer: BearerAuthentication, provider: IdentityProvider, clock: ManualClock
) -> None:
    for number in range(remembered_max + 5):
        await bearer.principal(f"Bearer {provider.token(now_s(clock), sub=f'u{number}')}")
    assert len(bearer._remembered) == remembered_max


async def test_a_key_is_added_and_an_old_one_taken_out(
    bearer: BearerAuthentication, provider: IdentityProvider, published: Published, clock: ManualClock
) -> None:
    old = provider.token(now_s(clock))
    await bearer.principal(f"Bearer {old}")
    provider.add("next", "ES256", ec.generate_private_key(ec.SECP256R1()))
    await clock.advance(unknown_key_pause_s)
    await bearer.principal(f"Bearer {provider.token(now_s(clock), 'next')}")
    assert published.looks == 2
    del provider.keys["ES256"]
    await bearer.principal(f"Bearer {old}")
    await clock.advance(refresh_period_s)
    assert "does not have" in await refused(bearer, old)


async def test_another_key_under_an_old_id_believes_no_remembered_token(
    bearer: BearerAuthentication, provider: IdentityProvider, clock: ManualClock
) -> None:
    old = provider.token(now_s(clock))
    await bearer.principal(f"Bearer {old}")
    provider.add("ES256", "ES256", ec.generate_private_key(ec.SECP256R1()))
    await clock.advance(refresh_period_s)
    assert "signature is wrong" in await refused(bearer, old)


async def test_invented_key_ids_cause_few_looks(
    bearer: BearerAuthentication, provider: IdentityProvider, published: Published, clock: ManualClock
) -> None:
    private = provider.keys["ES256"][1]
    tokens = [jwt.encode({}, private, "ES256", headers={"kid": f"k{number}"}) for number in range(50)]
    await asyncio.gather(*(refused(bearer, token) for token in tokens))
    assert published.looks == 1


async def test_keys_are_believed_for_a_while_when_they_cannot_be_read(
    bearer: BearerAuthentication, provider: IdentityProvider, published: Published, clock: ManualClock
) -> None:
    published.failure = OSError("down")
    with pytest.raises(Unavailable):
        await bearer.principal(f"Bearer {provider.token(now_s(clock))}")
    published.failure = None
    await clock.advance(unknown_key_pause_s)
    await bearer.principal(f"Bearer {provider.token(now_s(clock))}")
    for failure in (OSError("down"), TimeoutError(), ConfigurationError("no JWKS")):
        published.failure = failure
        await clock.advance(refresh_period_s)
        await bearer.principal(f"Bearer {provider.token(now_s(clock))}")
    await clock.advance(unread_max_s)
    with pytest.raises(Unavailable, match="could not be read"):
        await bearer.principal(f"Bearer {provider.token(now_s(clock))}")


async def test_keys_are_read_although_who_asked_for_them_goes_away(
    provider: IdentityProvider, clock: ManualClock
) -> None:
    """An identity provider that takes longer than each of its callers waits."""
    may_answer = asyncio.Event()

    async def slow() -> bytes:
        await may_answer.wait()
        return provider.document

    bearer = BearerAuthentication(JsonWebKeys(slow, "test", clock), RULES, clock)
    token = provider.token(now_s(clock))
    calls = [asyncio.ensure_future(bearer.principal(f"Bearer {token}")) for _ in range(2)]
    for _ in range(5):
        await asyncio.sleep(0)
    calls[0].cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    may_answer.set()
    first, second = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(first, asyncio.CancelledError) and not isinstance(second, BaseException), second
    assert (await bearer.principal(f"Bearer {token}")).name == second.name


def test_only_usable_keys_are_taken(provider: IdentityProvider) -> None:
    good = provider.public("RS256")
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    provider.add("weak", "RS256", weak)
    provider.add("curve", "ES256", ec.generate_private_key(ec.SECP384R1()))
    others = [
        {**good, "kid": "encrypts", "use": "enc"},
        {**good, "kid": "RS512", "alg": "RS512"},
        {name: value for name, value in good.items() if name != "kid"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"},
        {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"},
        {"kid": "nothing"},
    ]
    listed = [provider.public(key_id) for key_id in provider.keys if key_id != "curve"] + others
    found = parse_keys(json.dumps({"keys": listed}).encode())
    assert {key_id: key.algorithm for key_id, key in found.items()} == {"RS256": "RS256", "ES256": "ES256"}
    too_many = [{**good, "kid": str(number)} for number in range(keys_max + 1)]
    for document in (b"", b"[]", b"{}", b'{"keys": 3}', b'{"keys": [3]}', b'{"keys": []}', b"[" * 100_000):
        with pytest.raises(ConfigurationError):
            parse_keys(document)
    with pytest.raises(ConfigurationError, match="limit"):
        parse_keys(json.dumps({"keys": too_many}).encode())
    with pytest.raises(ConfigurationError, match=str(document_bytes_max)):
        parse_keys(b" " * (document_bytes_max + 1))


async def test_users_and_tokens_beside_each_other(
    tmp_path: Path, bearer: BearerAuthentication, provider: IdentityProvider, clock: ManualClock
) -> None:
    users = tmp_path / "users"
    write_users(users, {"bob": User("bob", HashedPassword.of(b"password"), AccessEntries.parse(ENTRIES))})
    both = SchemeAuthentication(bearer, PasswordAuthentication(users, clock))
    basic = base64.b64encode(b"bob:password").decode()
    assert (await both.principal(f"Basic {basic}")).name == "bob"
    assert (await both.principal(f"Bearer {provider.token(now_s(clock))}")).name == "alice"
    for authentication in (both, SchemeAuthentication(bearer, None)):
        with pytest.raises(AuthenticationFailed):
            await authentication.principal("")
    with pytest.raises(AuthenticationFailed):
        await SchemeAuthentication(bearer, None).principal(f"Basic {basic}")


async def test_a_file_is_read_at_the_start_and_followed(
    tmp_path: Path, provider: IdentityProvider, clock: ManualClock
) -> None:
    file = tmp_path / "jwks.json"
    with pytest.raises(ConfigurationError, match=r"jwks\.json cannot be read"):
        open_keys(str(file), "", clock)
    file.write_bytes(b"broken")
    with pytest.raises(ConfigurationError, match="no JWKS"):
        open_keys(str(file), "", clock)
    file.write_bytes(provider.document)
    keys = open_keys(str(file), "", clock)
    provider.add("next", "ES256", ec.generate_private_key(ec.SECP256R1()))
    await asyncio.to_thread(file.write_bytes, provider.document)
    assert await keys.key("ES256") is not None and await keys.key("next") is None
    await clock.advance(unknown_key_pause_s)
    assert await keys.key("next") is not None


@pytest.fixture
async def website(tmp_path: Path, provider: IdentityProvider) -> AsyncIterator[tuple[str, Path]]:
    """The address of an identity provider, and who signed its certificate."""

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/moved":
            raise web.HTTPFound("/jwks")
        if request.path == "/large":
            return web.Response(body=b" " * (2 * document_bytes_max))
        return web.Response(body=provider.document)

    files = Authority(tmp_path / "ca").issue()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    application = web.Application()
    application.router.add_get("/{path}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}", files.ca
    await runner.cleanup()


async def test_keys_of_an_https_address(website: tuple[str, Path], tmp_path: Path, clock: ManualClock) -> None:
    address, authority = website
    assert await open_keys(f"{address}/jwks", str(authority), clock).key("ES256") is not None
    stranger = Authority(tmp_path / "stranger", "another authority").file
    for path, trusted in (("jwks", stranger), ("moved", authority), ("large", authority)):
        with pytest.raises(Unavailable):
            await open_keys(f"{address}/{path}", str(trusted), clock).key("ES256")
    with pytest.raises(ConfigurationError, match="jwt_ca_file"):
        open_keys(f"{address}/jwks", str(tmp_path / "missing"), clock)
