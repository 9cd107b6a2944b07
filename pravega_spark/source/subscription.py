"""Tells the controller how far a query has committed, so that retention keeps what it has still to read.

Runs in the process that plans the batches. What is released never goes ahead of the checkpoint: a batch is planned
from what the one before has committed, and Spark calls ``commit`` with the end of a batch only after it has logged that
batch as done. A release that is lost in a crash comes back with the first batch after the next start.
"""

from __future__ import annotations

import logging
from typing import Final

from pravega_common.errors import InvalidArgument, NotFound, PravegaError
from pravega_common.model.reader_groups import GroupRegistration
from pravega_common.names import scoped_name
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
        self._trouble = ""
        """The last failure that was logged: each is logged once in a row."""

    @property
    def is_due(self) -> bool:
        """Whether ``begin`` has something to do."""
        return self._options.subscriber is not None and self._registration is None

    def begin(self, position: OffsetsByStream) -> None:
        """Subscribe, and hold the streams back at the position; only the first call does so.

        A query that cannot subscribe does not start: what it has to read could go. Raises what the gateway raises.
        """
        name = self._options.subscriber
        if name is None or not self.is_due:
            return
        gateway = provisioned_gateway(self._options)
        self._registration = gateway.subscribe(self._options.scope, name, self._options.streams)
        self._release(self._registration, position)

    def release(self, position: OffsetsByStream) -> None:
        """Release what a logged batch has read. Never raises: what is not released now is with a later batch."""
        if self._options.subscriber is None:
            return
        failpoint(BATCH_COMMITTED, self._options.subscriber)
        try:
            if self._registration is None:
                self.begin(position)
            else:
                self._release(self._registration, position)
        except PravegaError as error:
            self._warn(f"subscriber {self._options.subscriber} cannot subscribe: {error}")

    def _release(self, registration: GroupRegistration, position: OffsetsByStream) -> None:
        gateway = provisioned_gateway(self._options)
        trouble = ""
        for scope, name in self._options.streams:
            stream = scoped_name(scope, name)
            if stream not in position:
                continue
            try:
                gateway.release(registration, scope, name, position[stream])
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
