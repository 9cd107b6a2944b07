"""Signs and verifies the tokens that segment stores are shown: JWTs of HS512 with a key of the cluster.

Their claims are Pravega's: ``sub``, ``aud``, ``iat``, ``exp`` in seconds, and for each resource a claim of its name
with the permission as value. A token of a service of the cluster has the claim ``role`` with the value ``internal``
and may do everything.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt

from pravega_common.errors import AuthenticationFailed, TokenExpired
from pravega_common.resources import INTERNAL_ROLE, ROOT, Permission
from pravega_common.runtime.clock import Clock
from pravega_common.services.security.cluster_keys import ClusterKeys

ALGORITHM: Final = "HS512"
AUDIENCE: Final = "segmentstore"
token_life_ms_default: Final = 600_000
skew_s: Final = 30
"""By how much the clocks of two machines may differ."""
token_chars_max: Final = 8_192
resources_max: Final = 64
"""Resources of one token."""
verified_max: Final = 10_000
"""Tokens that are remembered as verified; some 1 KB each."""
_KEPT_CLAIMS: Final = {
    "verify_exp": False,  # by the clock of the service
    "verify_iat": False,
    "verify_nbf": False,
    "require": ["sub", "aud", "exp"],
}


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """A token whose signature is good: who has it, until when, and what it allows."""

    subject: str
    expires_s: int
    """Seconds since 1970."""
    is_internal: bool
    permissions: Mapping[str, Permission]

    def permits(self, resource: str, needed: Permission) -> bool:
        return self.is_internal or self.permissions.get(resource, Permission.NONE) >= needed


class DelegationTokens:
    """Signs and verifies with the keys of the cluster; remembers what was verified, up to a limit."""

    def __init__(self, keys: ClusterKeys, clock: Clock, subject: str, *, life_ms: int = token_life_ms_default) -> None:
        """``subject``: the name of this service in its own tokens."""
        self._keys = keys
        self._clock = clock
        self._subject = subject
        self._life_s = max(life_ms // 1000, 1)
        self._verified: OrderedDict[str, VerifiedToken] = OrderedDict()
        self._own = ""
        self._own_signed_at_s = 0
        """Seconds since 1970."""

    def internal(self) -> str:
        """A token of this service itself; a new one once half the life of the last is over.

        By the time of day, by which tokens end: it goes on while the machine sleeps, and may be set.
        """
        now_s = self._clock.wall_ms() // 1000
        if not self._own or not 0 <= now_s - self._own_signed_at_s < self._life_s / 2:
            self._own = self._signed({"sub": self._subject, "role": INTERNAL_ROLE})
            self._own_signed_at_s = now_s
        return self._own

    def sign(self, subject: str, permissions: Mapping[str, Permission]) -> str:
        """A token that allows this much of each resource, and nothing else."""
        granted = {name: needed.name for name, needed in permissions.items() if needed is not Permission.NONE}
        return self._signed({"sub": subject, **granted})

    def verify(self, token: str) -> VerifiedToken:
        """``AuthenticationFailed`` for a token that this cluster has not signed, ``TokenExpired`` for one that has
        ended; no error shows any of it."""
        found = self._verified.get(token)
        if found is None:
            found = self._decoded(token)
            self._verified[token] = found
            if len(self._verified) > verified_max:
                self._verified.popitem(last=False)
        if self._clock.wall_ms() > (found.expires_s + skew_s) * 1000:
            del self._verified[token]
            raise TokenExpired(f"the token of {found.subject} ended at {found.expires_s} s")
        return found

    def _signed(self, claims: Mapping[str, Any]) -> str:
        now_s = self._clock.wall_ms() // 1000
        return jwt.encode(
            {**claims, "aud": AUDIENCE, "iat": now_s, "exp": now_s + self._life_s},
            self._keys.signing_key,
            ALGORITHM,
            headers={"kid": self._keys.signing_id},
        )

    def _decoded(self, token: str) -> VerifiedToken:
        if not token:
            raise AuthenticationFailed("no token was given")
        if len(token) > token_chars_max:
            raise AuthenticationFailed(f"a token of {len(token)} characters; the limit is {token_chars_max}")
        with contextlib.suppress(jwt.PyJWTError, ValueError, RecursionError):
            key = self._keys.by_id.get(str(jwt.get_unverified_header(token).get("kid")))
            if key is None:
                raise AuthenticationFailed("the token is signed with a key that this service does not have")
            claims = jwt.decode(token, key, [ALGORITHM], audience=AUDIENCE, options=_KEPT_CLAIMS)  # type: ignore[arg-type]
            return _verified(claims)
        # Raised here, it has nothing of the other error with it, whose frames would know who keeps this one.
        raise AuthenticationFailed("the token is malformed, or not signed by this cluster")


def _verified(claims: Mapping[str, Any]) -> VerifiedToken:
    """``ValueError`` for claims that no token of this cluster has."""
    expires_s = claims["exp"]
    if not isinstance(expires_s, int) or isinstance(expires_s, bool):
        raise ValueError("exp is no integer")
    resources = {name: value for name, value in claims.items() if name.startswith(ROOT)}
    if len(resources) > resources_max:
        raise ValueError("too many resources")
    permissions = {name: Permission[str(value)] for name, value in resources.items() if value in Permission.__members__}
    return VerifiedToken(str(claims["sub"]), expires_s, claims.get("role") == INTERNAL_ROLE, permissions)
