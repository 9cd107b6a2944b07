"""Has a Redis rewrite its append-only file when nothing is written and little of the file is live.

Redis rewrites by growth alone, which is in the middle of a load. What a load left behind would be read at each start
and stay on the disk, although Tier 2 has it by then; in a quiet minute the rewrite costs nobody anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.services.base import Service

look_s: Final = 60.0
quiet_bytes_max: Final = 1024 * 1024
"""Growth of the file from one look to the next that counts as quiet: leases and checkpoints go on."""
rewrite_bytes_min: Final = 512 * 1024 * 1024
"""Size of a file that is worth a rewrite: it is loaded in a second."""
live_share_max: Final = 0.25
"""Part of the file that may be live, by the memory that Redis uses: the rest is what a rewrite removes."""
answer_time_max_s: Final = 5.0


@dataclass(frozen=True, slots=True)
class FileState:
    """The append-only file of a Redis: its size, the memory of what is live, and whether it is being rewritten."""

    size_bytes: int
    live_bytes: int
    is_rewriting: bool = False

    def calls_for_rewrite(self, before: FileState | None) -> bool:
        """Whether to rewrite it now, when it was in the state ``before`` at the last look; ``None``: not known."""
        if before is None or self.is_rewriting or self.size_bytes < rewrite_bytes_min:
            return False
        is_quiet = 0 <= self.size_bytes - before.size_bytes <= quiet_bytes_max
        return is_quiet and self.live_bytes <= live_share_max * self.size_bytes


class QuietRewrite(Service):
    """A service that looks at one Redis, which listens on a Unix socket, once a minute."""

    def __init__(self, name: str, socket: Path, clock: Clock | None = None) -> None:
        super().__init__(f"{name}-rewrite")
        self._socket = socket
        self._clock = clock or SystemClock()
        self._before: FileState | None = None

    async def on_start(self) -> None:
        self.spawn(self._run(), "looks")

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(look_s)
            await self.look()

    async def look(self) -> None:
        """Look once. A Redis that does not answer is looked at again the next time: only its file stays large."""
        client = Redis(
            unix_socket_path=str(self._socket),
            socket_timeout=answer_time_max_s,
            socket_connect_timeout=answer_time_max_s,
        )
        try:
            before, self._before = self._before, None
            found = {**await client.info("persistence"), **await client.info("memory")}
            state = self._before = FileState(
                int(found["aof_current_size"]),
                int(found["used_memory"]),
                bool(found["aof_rewrite_in_progress"] or found["aof_rewrite_scheduled"]),
            )
            if state.calls_for_rewrite(before):
                await client.bgrewriteaof()
                self.log.info("the append-only file is rewritten", size_bytes=state.size_bytes)
        except RedisError as error:
            self.log.debug("Redis was not asked to rewrite its append-only file", error=repr(error))
        finally:
            await client.aclose()
