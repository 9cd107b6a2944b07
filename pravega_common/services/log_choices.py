"""Names the levels and formats of a log, for commands that must not import what writes one."""

from __future__ import annotations

import enum


class LogLevel(enum.StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(enum.StrEnum):
    TEXT = "text"
    JSON = "json"
