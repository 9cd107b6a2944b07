"""Reports the event time that a batch reached to its streams, so that their watermarks advance.

Runs on the driver, once a batch can be read: the time stands behind its rows. A crash before the report is made up for
by the batch's replay, or by the next batch; times that do not rise change nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from pravega_common.errors import InvalidArgument, PravegaError
from pravega_common.runtime.failpoints import failpoint, register
from pravega_spark.gateway.contract import StreamGateway
from pravega_spark.options.given import StreamName

BEFORE_NOTE: Final = register("spark.commit.before_note")

_log = logging.getLogger(__name__)


def note_event_time(
    gateway: StreamGateway, writer_id: str, streams: Collection[StreamName], times_ms: Collection[int | None]
) -> None:
    """Report the greatest of the tasks' times, which may be None, as of one writer.

    Never raises: the batch is committed, and watermarks only wait.
    """
    known = [time_ms for time_ms in times_ms if time_ms is not None]
    if not known:
        return
    failpoint(BEFORE_NOTE, writer_id)
    for scope, stream in streams:
        try:
            gateway.note_time(scope, stream, writer_id, gateway.tail_cut(scope, stream), max(known))
        except InvalidArgument as error:
            # All rows of the batch are older than those of an earlier one.
            _log.debug("%s", error)
        except PravegaError as error:
            _log.warning("the event time of %s/%s waits for the next batch: %s", scope, stream, error)
