"""Writes the audit log: one record for each administrative call, with who made it and what came of it."""

from __future__ import annotations

import json
import logging
from logging.handlers import RotatingFileHandler
from typing import Final

import structlog

from pravega_common.errors import ConfigurationError
from pravega_common.runtime.clock import Clock

file_bytes_max: Final = 16 * 1024 * 1024
"""Size at which the file is put aside and a new one begins."""
files_kept: Final = 20
"""Older files beside the present one, as ``FILE.1`` to ``FILE.20``."""
text_chars_max: Final = 500
"""Characters of a name that are written."""
NOBODY: Final = "-"
"""Who calls where nobody is asked for a name."""


class AuditLog:
    """Records go to the log at level info, and as JSON lines to a file if one is named, which is rotated by size."""

    def __init__(self, clock: Clock, file: str = "") -> None:
        """``ConfigurationError`` if the file cannot be written."""
        self._clock = clock
        self._log = structlog.get_logger(service="audit")
        self._handler: RotatingFileHandler | None = None
        if file:
            try:
                self._handler = RotatingFileHandler(
                    file, maxBytes=file_bytes_max, backupCount=files_kept, encoding="utf-8"
                )
            except OSError as error:
                raise ConfigurationError(f"log.audit_file = {file}: cannot be written: {error.strerror}") from error

    def note(self, *, who: str, peer: str, call: str, subject: str, outcome: str) -> None:
        """Record a call. ``subject``: the scope, stream, table, group or sink; ``outcome``: a status by its name."""
        record = {"who": who, "peer": peer, "call": call, "on": subject[:text_chars_max], "outcome": outcome}
        self._log.info("administrative call", **record)
        if self._handler is not None:
            line = json.dumps({"wall_ms": self._clock.wall_ms(), **record})
            self._handler.handle(logging.makeLogRecord({"msg": "%s", "args": (line,)}))

    def close(self) -> None:
        if self._handler is not None:
            self._handler.close()
