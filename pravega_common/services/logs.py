"""Sets up the log of a service process: level, format, and the lines of errors that nobody foresaw."""

from __future__ import annotations

import logging
from typing import Any, Final

import structlog

from pravega_common.services.log_choices import LogFormat, LogLevel
from pravega_common.services.log_output import DroppingOutput
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
