"""Decides by the token of a request whether it may be served (docs/security.md).

Without keys of the cluster every request is served. With authentication, each needs a token that permits what it does
with its stream, table or reader group. With keys alone, what belongs to the controllers needs a token of a
service of the cluster: the controllers' own segments, and what makes, merges or ends segments. Clients of Pravega seal
and truncate segments, merge transient segments into their parents, and keep tables of their own (reader groups of the
Rust client).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from pravega_common import names
from pravega_common.errors import AuthenticationFailed, PravegaError
from pravega_common.invariants import check
from pravega_common.resources import Permission, stream_resource
from pravega_common.services.security.delegation_tokens import DelegationTokens
from pravega_common.wire import codec
from pravega_common.wire import commands as wire
from pravega_common.wire.commands import Command
from pravega_common.wire.errors import WireDecodeError

_SYSTEM: Final = names.SYSTEM_SCOPE + "/"
_INTERNAL: Final = (
    wire.CreateSegment,
    wire.DeleteSegment,
    wire.UpdateSegmentPolicy,
    wire.MergeSegmentsBatch,
)
"""Requests of controllers alone, whatever segment they are about."""
resources_remembered_max: Final = 10_000


class TokenCheck:
    """The check of all connections of a store; holds no state of a connection."""

    def __init__(self, tokens: DelegationTokens | None = None, *, authenticates: bool = False) -> None:
        """``authenticates``: whether clients need tokens, too."""
        check(tokens is not None or not authenticates, "authentication without keys of the cluster")
        self._tokens = tokens
        self._authenticates = authenticates

    @property
    def is_on(self) -> bool:
        return self._tokens is not None

    def check(self, request: Command) -> int | None:
        """``AuthenticationFailed`` or ``TokenExpired`` for a request that may not be served with its token.

        Returns when the permission ends, in seconds since 1970; None if it needs no token.
        """
        if self._tokens is None:
            return None
        needs_internal = _needs_internal(request)
        if not needs_internal and not self._authenticates:
            return None
        verified = self._tokens.verify(_token_of(request))
        if verified.is_internal:
            return verified.expires_s
        if needs_internal:
            raise AuthenticationFailed("only services of the cluster may do this")
        needed = Permission.READ if isinstance(request, wire.READING_REQUESTS) else Permission.READ_UPDATE
        if not all(verified.permits(_resource_of(segment), needed) for segment in _segments_of(request)):
            raise AuthenticationFailed(f"the token of {verified.subject} does not permit this")
        return verified.expires_s

    def is_internal(self, token: str) -> bool:
        """Whether a service of the cluster has signed it for itself, and it has not ended."""
        if self._tokens is None or not token:
            return False
        try:
            return self._tokens.verify(token).is_internal
        except PravegaError:
            return False

    def counts_for_quota(self, request: wire.SetupAppend | wire.ReadSegment) -> bool:
        """Whether bytes count for the limit of their scope: all but those of the marks that controllers keep of its
        streams. Anybody may choose the name; without keys of the cluster there is nothing else to know them by."""
        if not request.segment.partition("/")[2].startswith(names.MARK_PREFIX):
            return True
        return self._tokens is not None and not self.is_internal(request.token)

    def is_of_internal(self, request: Command) -> bool:
        """Whether a request, or the first one of a batch, carries such a token."""
        if isinstance(request, wire.RequestBatch):
            if not request.requests:
                return False
            try:
                request = codec.decode_frame(request.requests[0])
            except WireDecodeError:
                return False
        return self.is_internal(_token_of(request))


@lru_cache(maxsize=resources_remembered_max)
def _resource_of(segment: str) -> str:
    """The resource whose permissions count for a segment; ``AuthenticationFailed`` for one that no client has."""
    scope, _, rest = segment.partition("/")
    stream, slash, _ = rest.partition("/")
    if not slash:
        raise AuthenticationFailed(f"{segment[:80]!r} belongs to no stream")
    return stream_resource(scope, stream)


def _token_of(request: Any) -> str:
    token: str = getattr(request, "token", "")
    return token


def _needs_internal(request: Command) -> bool:
    return (
        isinstance(request, _INTERNAL)
        or any(segment.startswith(_SYSTEM) for segment in _segments_of(request))
        or (isinstance(request, wire.MergeSegments) and not _is_large_event(request))
    )


def _is_large_event(request: wire.MergeSegments) -> bool:
    """Whether a transient segment, in which a client has put an event, is merged into its parent."""
    return names.is_transient_segment(request.source) and names.parent_segment_name(request.source) == request.target


def _segments_of(request: Any) -> tuple[str, ...]:
    """The segments that a request is about; ``_INTERNAL`` ones apart, which need none of them."""
    if isinstance(request, wire.MergeSegments):
        return request.target, request.source
    if isinstance(request, wire.CreateTransientSegment):
        return (request.parent_segment,)
    if isinstance(request, wire.GetSegmentLengths):
        return tuple(request.segments)
    return (str(getattr(request, "segment", "")),)
