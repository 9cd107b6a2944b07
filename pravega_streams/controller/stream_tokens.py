"""Keeps the delegation tokens of the streams that a client uses, and renews them before they end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from pravega_streams.connection.token_claims import claims_of

tokens_kept_max: Final = 10_000
"""Streams whose token is remembered."""
unknown_life_s: Final = 60.0
"""How long a token is shown that does not say when it ends."""


class StreamTokens:
    """The tokens by stream. Safe to use from several threads: two that ask at a time may both ask the controller."""

    def __init__(
        self,
        ask: Callable[[str, str], str],
        *,
        needed: bool = True,
        wall_s: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """``ask``: gets a token for scope and stream from the controller. ``needed``: False for a client that has no
        credentials and so shows none."""
        self._ask = ask
        self._needed = needed
        self._wall_s = wall_s
        self._monotonic_s = monotonic_s
        self._kept: dict[tuple[str, str], tuple[str, float]] = {}

    def of_segment(self, segment: str) -> str:
        """The token of the stream, table or reader group that a segment belongs to; errors are those of ``ask``."""
        known = self.known(segment)
        if known is not None:
            return known
        token = self._ask(*_stream_of(segment))
        if len(self._kept) >= tokens_kept_max:
            self._kept.clear()
        self._kept[_stream_of(segment)] = token, self._monotonic_s() + self._shown_s(token)
        return token

    def known(self, segment: str) -> str | None:
        """The token if it is known without asking, and more than half of its life is left."""
        if not self._needed:
            return ""
        token, renew_at_s = self._kept.get(_stream_of(segment), ("", 0.0))
        return token if self._monotonic_s() < renew_at_s else None

    def forget(self, segment: str) -> None:
        """A store did not take the token, or the connection was lost: ask again."""
        self._kept.pop(_stream_of(segment), None)

    def _shown_s(self, token: str) -> float:
        """Half of the life that a new token has, which its payload tells; by this machine's time of day, which may be
        another than the cluster's, only where it does not say when it began."""
        claims = claims_of(token)
        try:
            began_s = claims.get("iat", self._wall_s())
            return max(float(claims["exp"]) - float(began_s), 0.0) / 2
        except (KeyError, ValueError, TypeError):
            return unknown_life_s


def _stream_of(segment: str) -> tuple[str, str]:
    scope, _, rest = segment.partition("/")
    return scope, rest.partition("/")[0]
