"""Authenticates the callers of an API by bearer JWTs that an identity provider signed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt

from pravega_common.errors import AuthenticationFailed, ConfigurationError
from pravega_common.runtime.clock import Clock
from pravega_common.services.security.access_entries import AccessEntries
from pravega_common.services.security.authentication import FAILURES, PasswordAuthentication
from pravega_common.services.security.json_web_keys import JsonWebKeys, WebKey
from pravega_common.services.security.principal import Principal

SCHEME: Final = "bearer"
ACCESS_CLAIM_DEFAULT: Final = "pravega_access"
token_chars_max: Final = 8_192
name_chars_max: Final = 256
skew_s: Final = 30
"""By how much the clocks of the identity provider and of a controller may differ."""
remembered_max: Final = 1_000
"""Tokens whose signature need not be verified again, while their key is known."""
_BY_THE_CLOCK_OF_THE_SERVICE: Final = {
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "require": ["exp", "iss", "aud", "sub"],
}


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The claims that a token must have: who signed it and for whom; and the name of the claim with access entries."""

    issuer: str
    audience: str
    access_claim: str = ACCESS_CLAIM_DEFAULT


@dataclass(frozen=True, slots=True)
class _Verified:
    key: WebKey
    not_before_s: float
    expires_s: float
    principal: Principal


class BearerAuthentication:
    """Finds the principal of a header ``Bearer …``: subject and access entries are claims of the token.

    The algorithm is the key's, whatever a token says. No error shows any of a token.
    """

    challenge: Final = 'Bearer realm="pravega"'

    def __init__(self, keys: JsonWebKeys, rules: TokenRules, clock: Clock) -> None:
        self._keys = keys
        self._rules = rules
        self._clock = clock
        self._remembered: OrderedDict[str, _Verified] = OrderedDict()

    async def principal(self, header: str, host: str = "") -> Principal:
        """``AuthenticationFailed``; ``Unavailable`` while the identity provider's keys cannot be read. To check a token
        takes no time of others, so a host has no share of it."""
        try:
            return await self._principal(header)
        except AuthenticationFailed:
            FAILURES.inc()
            raise

    async def _principal(self, header: str) -> Principal:
        scheme, _, token = header.partition(" ")
        token = token.strip()
        if scheme.lower() != SCHEME or not 0 < len(token) <= token_chars_max:
            raise AuthenticationFailed("no bearer token was given, or one that is too long")
        key = await self._keys.key(_key_id(token))
        if key is None:
            raise AuthenticationFailed("the bearer token is signed with a key that the identity provider does not have")
        found = self._remembered.get(token)
        if found is None or found.key is not key:
            found = self._verified(token, key)
            self._remembered[token] = found
            if len(self._remembered) > remembered_max:
                self._remembered.popitem(last=False)
        now_s = self._clock.wall_ms() / 1000
        if now_s > found.expires_s + skew_s:
            del self._remembered[token]
            raise AuthenticationFailed(f"the bearer token of {found.principal.name} has ended: get a new one")
        if now_s < found.not_before_s - skew_s:
            raise AuthenticationFailed(f"the bearer token of {found.principal.name} is not valid yet")
        return found.principal

    def _verified(self, token: str, key: WebKey) -> _Verified:
        rules = self._rules
        try:
            claims = jwt.decode(
                token,
                key.public,
                [key.algorithm],
                audience=rules.audience,
                issuer=rules.issuer,
                options=_BY_THE_CLOCK_OF_THE_SERVICE,  # type: ignore[arg-type]
            )
            times_s = _time_of(claims, "nbf", 0), _time_of(claims, "exp", None)
            return _Verified(key, *times_s, Principal(_name_of(claims), self._entries_of(claims)))
        except jwt.InvalidAudienceError:
            raise AuthenticationFailed("the bearer token is for another service than this cluster") from None
        except jwt.InvalidIssuerError:
            raise AuthenticationFailed("the bearer token is of another identity provider") from None
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise AuthenticationFailed("the bearer token is malformed, or its signature is wrong") from None
        except ConfigurationError as error:
            raise AuthenticationFailed(f"claim {rules.access_claim} of the bearer token: {error}") from None

    def _entries_of(self, claims: Mapping[str, Any]) -> AccessEntries:
        """One text, or a list of entries; nothing is permitted without the claim."""
        given = claims.get(self._rules.access_claim, "")
        texts = given if isinstance(given, list) else [given]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("access entries are no texts")
        return AccessEntries.parse(";".join(texts))


class SchemeAuthentication:
    """Authenticates by the scheme of the header: bearer tokens, and passwords where there are users."""

    def __init__(self, bearer: BearerAuthentication, passwords: PasswordAuthentication | None) -> None:
        self._bearer = bearer
        self._passwords = passwords

    @property
    def challenge(self) -> str:
        passwords = "" if self._passwords is None else f"{self._passwords.challenge}, "
        return passwords + self._bearer.challenge

    async def principal(self, header: str, host: str = "") -> Principal:
        """As of both."""
        is_bearer = header.partition(" ")[0].lower() == SCHEME
        if self._passwords is None or is_bearer:
            return await self._bearer.principal(header, host)
        return await self._passwords.principal(header, host)


def _key_id(token: str) -> str:
    try:
        return str(jwt.get_unverified_header(token).get("kid", ""))
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise AuthenticationFailed("the bearer token is malformed, or its signature is wrong") from None


def _time_of(claims: Mapping[str, Any], name: str, default: int | None) -> float:
    value = claims.get(name, default)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"{name} is no time")
    return float(value)


def _name_of(claims: Mapping[str, Any]) -> str:
    name = claims["sub"]
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= name_chars_max:
        raise ValueError("sub is no name")
    return name
