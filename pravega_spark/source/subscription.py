"""Tells the controller how far a query has committed, so that retention keeps what it has still to read.

Runs in the process that plans the batches. What is released never goes ahead of the checkpoint: a batch is planned
from what the one before has committed, and Spark calls ``commit`` with the end of a batch only after it has logged that
batch as done. A release that is lost in a crash comes back with the first batch after the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from pravega_common.errors import InvalidArgument, NotFound, PravegaError
from pravega_common.model.reader_groups import GroupRegistration
from pravega_common.model.segments import SegmentOffsets
from pravega_common.names import scoped_name, split_scoped_name
from pravega_common.runtime.failpoints import failpoint, register
from pravega_spark.gateway.provisioning import provisioned_gateway
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.source.offsets import OffsetsByStream

BATCH_COMMITTED: Final = register("spark.source.batch_committed")

_log = logging.getLogger(__name__)


class Subscription:
    """The query as a subscriber of its streams; nothing without option ``subscriber``."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._registration: GroupRegistration | None = None
        self._has_begun = False
        self._position: dict[str, SegmentOffsets] = {}
        """How far the query has committed, in each stream that it holds back."""
        self._released: dict[str, SegmentOffsets] = {}
        """What the controller knows of it."""
        self._trouble = ""
        """The last failure that was logged: each is logged once in a row."""

    def is_due(self, streams: Iterable[str]) -> bool:
        """Whether ``hold`` has something to do for these."""
        is_new = not self._has_begun or (self._follows_pattern and any(name not in self._position for name in streams))
        return self._options.subscriber is not None and is_new

    def hold(self, position: OffsetsByStream) -> None:
        """Subscribe to the streams of a position, and hold them back there; does nothing if they are held already.

        A query that cannot subscribe does not start, since what it has to read could go: the first call raises what the
        gateway raises. Streams that a pattern finds later are held once the controller can be asked, with a warning
        until then.
        """
        if not self.is_due(position):
            return
        self._position = {name: self._position.get(name, cut) for name, cut in self._mine(position).items()}
        try:
            self._subscribe()
        except PravegaError as error:
            if not self._has_begun:
                raise
            self._warn(f"subscriber {self._options.subscriber} does not hold its new streams yet: {error}")
        self._has_begun = True

    def release(self, position: OffsetsByStream) -> None:
        """Release what a logged batch has read. Never raises: what is not released now is with a later batch."""
        if self._options.subscriber is None:
            return
        failpoint(BATCH_COMMITTED, self._options.subscriber)
        found = self._mine(position)
        self._position.update(
            {name: cut for name, cut in found.items() if name in self._position or not self._position}
        )
        try:
            if self._registration is None:
                self._subscribe()
            else:
                self._release(self._registration)
        except PravegaError as error:
            self._warn(f"subscriber {self._options.subscriber} cannot subscribe: {error}")

    def forget(self, stream: str) -> None:
        """A stream is read no more: one of its name that comes later is another one."""
        self._position.pop(stream, None)
        self._released.pop(stream, None)

    def _mine(self, position: OffsetsByStream) -> OffsetsByStream:
        """Without the streams that a checkpoint has and the options do not name."""
        named = {scoped_name(*stream) for stream in self._options.streams}
        return {name: cut for name, cut in position.items() if self._follows_pattern or name in named}

    @property
    def _follows_pattern(self) -> bool:
        return self._options.stream_pattern is not None

    def _subscribe(self) -> None:
        """As a subscriber of the streams whose positions are known, or of those that the options name."""
        name, self._registration = self._options.subscriber, None
        found = [split_scoped_name(stream) for stream in self._position]
        streams = found if self._follows_pattern else self._options.streams
        if name is None or not streams:  # Nothing matches the pattern yet.
            return
        self._registration = provisioned_gateway(self._options).subscribe(self._options.scope, name, streams)
        self._released = {}
        self._release(self._registration)

    def _release(self, registration: GroupRegistration) -> None:
        """Only where the query went on since: an idle stream costs no call."""
        gateway = provisioned_gateway(self._options)
        trouble = ""
        for stream, cut in self._position.items():
            if self._released.get(stream) == cut:
                continue
            try:
                gateway.release(registration, *split_scoped_name(stream), cut)
                self._released[stream] = cut
            except InvalidArgument:
                trouble = (
                    f"a position of subscriber {registration.subscriber} in {stream} lies before what it released: its "
                    "checkpoint is older, or two queries have one name; what this query has still to read may go"
                )
            except NotFound:
                trouble = (
                    f"subscriber {registration.subscriber} of {stream} was removed: retention does not wait for this "
                    "query any more; restart it to subscribe again"
                )
            except PravegaError as error:
                trouble = f"retention of {stream} waits for {registration.subscriber}: {type(error).__name__}: {error}"
        self._warn(trouble)

    def _warn(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            _log.warning("%s", trouble)
        self._trouble = trouble
