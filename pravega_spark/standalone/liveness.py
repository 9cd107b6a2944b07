"""Asks a service over HTTP whether it still makes progress."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pravega_common.services.http_busy import busy_reason

answer_time_max_s: Final = 5.0
"""How long a service may take to answer; also the pause from one question to the next."""


@dataclass(frozen=True, slots=True)
class LivenessProbe:
    """A path that answers 200 while the loop of its process turns, whatever Redis and Tier 2 do.

    ``ca_file``: the authority of its certificate; ``None`` for plain HTTP.
    """

    host: str
    port: int
    path: str
    ca_file: Path | None = None

    async def is_alive(self) -> bool:
        """``False`` if no answer came in time, or if the service says itself that its loop is stuck.

        A connection that is refused or closed is an answer, with or without a reason: a process that hangs does
        neither.
        """
        writer = None
        try:
            async with asyncio.timeout(answer_time_max_s):
                reader, writer = await asyncio.open_connection(self.host, self.port, ssl=self._context())
                writer.write(f"GET {self.path} HTTP/1.1\r\nHost: {self.host}\r\nConnection: close\r\n\r\n".encode())
                answer = await reader.readline()
                return b" 503 " not in answer or busy_reason.encode() in answer
        except TimeoutError:
            return False
        except (OSError, ValueError):
            return True
        finally:
            if writer is not None:
                writer.transport.abort()

    def _context(self) -> ssl.SSLContext | None:
        return None if self.ca_file is None else ssl.create_default_context(cafile=str(self.ca_file))
