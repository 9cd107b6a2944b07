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
REFUSED: Final = ".refused"
"""Ending of the file of refused calls, which anybody can make: they never push out a record of what was done."""
refused_files_kept: Final = 4
text_chars_max: Final = 500
"""Characters of a name that are written."""
NOBODY: Final = "-"
"""Who calls where nobody is asked for a name."""


class AuditLog:
    """Records go to the log at level info, and as JSON lines to a file if one is named, which is rotated by size.

    Those of refused calls go to a file of their own beside it, ``FILE.refused``.
    """

    def __init__(self, clock: Clock, file: str = "") -> None:
        """``ConfigurationError`` if the file cannot be written."""
        self._clock = clock
        self._log = structlog.get_logger(service="audit")
        self._files: tuple[RotatingFileHandler, RotatingFileHandler] | None = None
        """The file of calls that were not refused, and that of those that were."""
        if file:
            self._files = _rotated(file, files_kept), _rotated(file + REFUSED, refused_files_kept)

    def note(self, *, who: str, peer: str, call: str, subject: str, outcome: str, was_refused: bool = False) -> None:
        """Record a call. ``subject``: the scope, stream, table, group or sink; ``outcome``: a status by its name;
        ``was_refused``: the caller may not do this, or the call makes no sense, so that nothing was done."""
        record = {"who": who, "peer": peer, "call": call, "on": subject[:text_chars_max], "outcome": outcome}
        self._log.info("administrative call", **record)
        if self._files is not None:
            line = json.dumps({"wall_ms": self._clock.wall_ms(), **record})
            self._files[was_refused].handle(logging.makeLogRecord({"msg": "%s", "args": (line,)}))

    def close(self) -> None:
        for file in self._files or ():
            file.close()


def _rotated(file: str, kept: int) -> RotatingFileHandler:
    try:
        return RotatingFileHandler(file, maxBytes=file_bytes_max, backupCount=kept, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"log.audit_file = {file}: cannot be written: {error.strerror}") from error
