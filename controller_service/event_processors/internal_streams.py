"""Makes the streams of scope ``_system`` that carry events between controllers and from segment stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from controller_service.store.records import StreamState
from controller_service.store.stream_store import StreamStore
from controller_service.workflows.create_stream import CreateStream
from pravega_common.errors import StreamNotFound
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import SYSTEM_SCOPE
from pravega_common.runtime.clock import Clock

segments_per_stream: Final = 2
"""As in Pravega; more instances than segments stand by."""
leader_wait_s: Final = 0.2
"""The pause of an instance that waits for the leader to make a stream."""


class InternalStreams:
    """The leader makes what is missing, the others wait for it; nothing waits for a request in a queue."""

    def __init__(self, store: StreamStore, create: CreateStream, is_leader: Callable[[], bool], clock: Clock) -> None:
        self._store = store
        self._create = create
        self._is_leader = is_leader
        self._clock = clock

    async def ensure(self, stream: str) -> None:
        """Return once the stream can be written and read. May be called again, also after a crash in the middle."""
        configuration = StreamConfiguration(ScalingPolicy.fixed(segments_per_stream))
        while not await self._is_complete(stream):
            if self._is_leader():
                await self._create.create_within(SYSTEM_SCOPE, stream, configuration)
            else:
                await self._clock.sleep(leader_wait_s)

    async def _is_complete(self, stream: str) -> bool:
        try:
            context = await self._store.open(SYSTEM_SCOPE, stream)
            return await context.state() is not StreamState.CREATING
        except StreamNotFound:
            return False
