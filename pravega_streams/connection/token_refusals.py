"""Tells a permission that is missing from a token that is wrong: a store answers the same code to both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pravega_common.errors import AccessDenied, AuthenticationFailed
from pravega_common.names import SYSTEM_SCOPE
from pravega_common.resources import INTERNAL_ROLE, ROOT, Permission, stream_resource
from pravega_common.wire import commands as c
from pravega_streams.connection.token_claims import claims_of

_ALL: Final = "*"
"""The claim of a token of a plain Pravega for every resource."""


def refusal_of(segment: str, error_code: int, request: c.Command | None) -> AccessDenied | AuthenticationFailed:
    """The error for a request that a store refused for its token, and not because that has ended.

    ``AccessDenied`` if the token says itself that it does not permit the request, as one with the same claims and a
    good signature would not either. ``request``: None where it is not known.
    """
    claims = claims_of(getattr(request, "token", ""))
    resource, needed = _resource_of(segment), Permission.READ_UPDATE
    if isinstance(request, c.READING_REQUESTS):
        needed = Permission.READ
    is_about_resources = any(name == _ALL or name.startswith(ROOT) for name in claims)
    if error_code == c.TOKEN_CHECK_FAILED and is_about_resources and _permission(claims, resource) < needed:
        return AccessDenied(
            f"user {claims.get('sub')} has no {needed.name} on {resource}: ask an operator for the entry "
            f"{resource},{needed.name} (docs/security.md 4.1); clients made after that have it"
        )
    if segment.startswith(f"{SYSTEM_SCOPE}/") and claims.get("role") != INTERNAL_ROLE:
        return AuthenticationFailed(
            f"{segment}: token refused (code {error_code}): what is in scope {SYSTEM_SCOPE} is for services of the "
            "cluster alone, which show its key (docs/security.md 2)"
        )
    return AuthenticationFailed(
        f"{segment}: token refused (code {error_code}), for a reason that only the store knows: make the client again, "
        f"and compare the cluster keys of controllers and stores (docs/security.md 2)"
    )


def _resource_of(segment: str) -> str:
    scope, _, rest = segment.partition("/")
    return stream_resource(scope, rest.partition("/")[0])


def _permission(claims: Mapping[str, Any], resource: str) -> Permission:
    """The most that a claim permits; in a plain Pravega one of a scope is for what is below it, too."""
    found = [
        Permission[str(value)]
        for name, value in claims.items()
        if (name in (_ALL, resource) or resource.startswith(f"{name}/")) and value in Permission.__members__
    ]
    return max(found, default=Permission.NONE)
