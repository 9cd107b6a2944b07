"""Logs errors of an HTTP server, but not what peers send that is no HTTP."""

from __future__ import annotations

import logging
from typing import Final

from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError

_NAME: Final = "pravega.http"


class _ErrorsOfTheServer(logging.Filter):
    """Drops the traceback that aiohttp logs for each malformed request: the peer gets 400, and no log is filled.

    A malformed body it reads to the end itself, behind the answer, also where no handler wants one.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError | RequestPayloadError))


def http_server_log() -> logging.Logger:
    """The logger to give to aiohttp's servers."""
    made = logging.getLogger(_NAME)
    if not made.filters:
        made.addFilter(_ErrorsOfTheServer())
    return made
