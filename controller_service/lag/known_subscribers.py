"""Keeps the subscribers that this controller heard of, and how far behind they are: for metrics, in bounded work.

Nothing is computed while nobody asks. An answer that is too old is made again, by reading the records of the streams of
these subscribers and no others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import structlog

from controller_service.lag.distance import Distances
from controller_service.lag.subscriber_lag import SubscriberLag, subscriber_lags
from controller_service.segment_access.segment_access import SegmentAccess
from controller_service.store.records import SUBSCRIBERS, TRUNCATION, SubscribersRecord
from controller_service.store.stream_store import StreamStore
from pravega_common.errors import NotFound, PravegaError
from pravega_common.names import split_scoped_name
from pravega_common.services.looks import Looks

known_max: Final = 100
"""Pairs of a stream and a subscriber that are known; further ones are not taken until one of these is gone."""
lag_age_max_s: Final = 30.0
"""An answer that is older is made again when somebody asks."""
refresh_time_max_s: Final = 5.0
"""The time of making one: streams that are not through by then keep what was known of them."""
streams_at_once_max: Final = 8


class KnownLag(NamedTuple):
    """The lag of a subscriber in one stream."""

    stream: str
    """``scope/stream``."""
    lag: SubscriberLag
    stalled_s: float
    """By the clock of now."""


class KnownSubscribers:
    """Keeps those who told a position here, or whom retention met, while there is room."""

    def __init__(self, store: StreamStore, access: SegmentAccess) -> None:
        self._store = store
        self._access = access
        self._known: dict[str, dict[str, SubscriberLag | None]] = {}
        """By stream and subscriber; None until the first look."""
        self._looks = Looks(
            store.clock, age_max_s=lag_age_max_s, time_max_s=refresh_time_max_s, at_once_max=streams_at_once_max
        )
        self._log = structlog.get_logger(service="lag")

    def __len__(self) -> int:
        return sum(map(len, self._known.values()))

    def heard_of(self, stream: str, subscribers: Iterable[str]) -> None:
        """These subscribe to a stream, by ``scope/stream``."""
        for subscriber in subscribers:
            known = self._known.get(stream, {})
            if subscriber in known or len(self) >= known_max:
                continue
            self._known.setdefault(stream, known)[subscriber] = None

    def lags(self) -> list[KnownLag]:
        """The lags as they were at the last look."""
        now_ms = self._store.clock.wall_ms()
        return [
            KnownLag(stream, lag, lag.stalled_s(now_ms))
            for stream, subscribers in self._known.items()
            for lag in subscribers.values()
            if lag is not None
        ]

    async def look(self) -> None:
        """Look again if the last look is too long ago; never raises, and takes ``refresh_time_max_s`` at most."""
        if not await self._looks.look(lambda: list(self._known), self._look_at):
            self._log.warning("lags of subscribers are not all known", streams=len(self._known))

    async def _look_at(self, stream: str) -> None:
        asked = set(self._known[stream])
        try:
            self._keep(stream, asked, await self._lags_of(stream, asked))
        except NotFound:
            del self._known[stream]
        except PravegaError as error:
            self._log.info("lag of subscribers is not known now", stream=stream, error=str(error))

    async def _lags_of(self, stream: str, asked: Iterable[str]) -> list[SubscriberLag]:
        """The lags of those that were asked for and still subscribe."""
        scope, name = split_scoped_name(stream)
        context = await self._store.open(scope, name, SUBSCRIBERS, TRUNCATION)
        records = (await context.read(SUBSCRIBERS) or SubscribersRecord()).subscribers
        epoch = await context.current_epoch()
        infos = await self._access.infos_found(epoch.names(scope, name))
        found = {key: info.length for key, info in zip(epoch.segment_ids, infos, strict=True) if info is not None}
        distances = Distances(context, found if len(found) == len(infos) else None)
        return await subscriber_lags(context, distances, [records[one] for one in asked if one in records])

    def _keep(self, stream: str, asked: set[str], lags: list[SubscriberLag]) -> None:
        """Note the lags of a stream's subscribers; the others of those that were asked for are gone."""
        known = self._known[stream]
        for lag in lags:
            known[lag.name] = lag
        for name in asked.difference(lag.name for lag in lags):
            del known[name]
        if not known:
            del self._known[stream]
