"""Sets up the log of a service process: level, format, and the lines of errors that nobody foresaw."""

from __future__ import annotations

import logging
import threading
from typing import Any, Final

import structlog

from pravega_common.services.log_choices import LogFormat, LogLevel
from pravega_common.services.settings import Section


class LogSection(Section):
    """The log on the standard output, which the starter of the process keeps and rotates."""

    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat.TEXT


class AuditedLogSection(LogSection):
    """The log of a service that administers, with the file of its audit log."""

    audit_file: str = ""


_LEVELS: Final = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
}


class DroppingOutput:
    """Prints records, and drops those that the standard output does not take: it may be a file on a full disk, or a
    pipe that nobody reads any more. What is logged is no part of the work, which would fail with it.

    It makes itself where structlog makes a logger for each record. The next record that is printed is followed by one
    with the number of those that were not; some of them may come late, from the output's own buffer.
    """

    def __init__(self) -> None:
        self._dropped = 0
        self._lock = threading.Lock()

    def __call__(self, *_: object) -> DroppingOutput:
        return self

    def msg(self, message: str) -> None:
        with self._lock:
            try:
                print(message, flush=True)
            except (OSError, ValueError):  # ValueError where it was closed
                self._dropped += 1
                return
            dropped, self._dropped = self._dropped, 0
        if dropped:
            log = structlog.get_logger(service="log")
            log.warning("records may be missing: they could not be written", count=dropped)

    debug = info = warning = error = critical = msg


def set_up_log(section: LogSection) -> None:
    """Every record is one line: keys and values, or a JSON object; a traceback is in its key ``exception``."""
    renderer: Any = structlog.processors.KeyValueRenderer(key_order=["timestamp", "level", "event"])
    if section.format is LogFormat.JSON:
        renderer = structlog.processors.JSONRenderer(default=str)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[section.level]),
        logger_factory=DroppingOutput(),
    )
