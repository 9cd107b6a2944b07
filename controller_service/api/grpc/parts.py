"""Lists the stores and workflows that the API's handlers are made of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from controller_service.lag.known_subscribers import KnownSubscribers
from controller_service.sets.known_sinks import KnownSinks
from controller_service.store.stream_store import StreamStore
from controller_service.store.writer_marks import WriterMarks
from controller_service.workflows.create_stream import CreateStream
from controller_service.workflows.delete_scope import DeleteScope
from controller_service.workflows.delete_stream import DeleteStream
from controller_service.workflows.key_value_tables import KeyValueTables
from controller_service.workflows.reader_groups import ReaderGroups
from controller_service.workflows.scale_stream import ScaleStream
from controller_service.workflows.scope_quota import SetScopeQuota
from controller_service.workflows.seal_stream import SealStream
from controller_service.workflows.truncate_stream import TruncateStream
from controller_service.workflows.update_stream import UpdateStream


class HostStore(Protocol):
    """The owners of segments and the controllers of the cluster."""

    async def owner_of(self, segment: str) -> tuple[str, int]:
        """Host and port of the store that owns the segment's container; ``NoHost``. The segment need not exist."""
        ...

    async def controllers(self) -> Sequence[tuple[str, int]]:
        """Published gRPC addresses of the live controllers."""
        ...


@dataclass(frozen=True)
class Workflows:
    create: CreateStream
    update: UpdateStream
    scale: ScaleStream
    truncate: TruncateStream
    seal: SealStream
    delete: DeleteStream
    delete_scope: DeleteScope
    quota: SetScopeQuota


@dataclass(frozen=True)
class ApiParts:
    store: StreamStore
    workflows: Workflows
    tables: KeyValueTables
    groups: ReaderGroups
    marks: WriterMarks
    known_subscribers: KnownSubscribers
    known_sinks: KnownSinks
    hosts: HostStore
    live_ids: Callable[[], Awaitable[set[str]]]
    """The ids of the controllers whose leases stand."""
    new_id: Callable[[], str]
    """Ids that are never given twice."""
