"""Lists the containers that run in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pravega_common.errors import ContainerNotHosted
from pravega_common.invariants import check
from segment_service.container.segment_container import SegmentContainer


class ContainerRegistry:
    """Containers by id."""

    def __init__(self) -> None:
        self._containers: dict[int, SegmentContainer] = {}
        self.on_removed: Callable[[SegmentContainer], object] = lambda container: None
        """Called with each container that requests do not reach any more."""

    def add(self, container: SegmentContainer) -> None:
        """Let requests reach a container that is running."""
        check(container.container_id not in self._containers, "container added twice", id=container.container_id)
        self._containers[container.container_id] = container

    def remove(self, container: SegmentContainer) -> None:
        """Does nothing if this very container is not there."""
        if self._containers.get(container.container_id) is container:
            del self._containers[container.container_id]
            self.on_removed(container)

    def find(self, container_id: int) -> SegmentContainer | None:
        return self._containers.get(container_id)

    def get(self, container_id: int) -> SegmentContainer:
        """``ContainerNotHosted`` if it does not run here."""
        container = self._containers.get(container_id)
        if container is None:
            raise ContainerNotHosted(container_id)
        return container

    def log_groups(self) -> set[str]:
        """The persistence groups that the containers' logs need."""
        return {group for container in self for group in container.durable_log.groups}

    def __iter__(self) -> Iterator[SegmentContainer]:
        return iter(list(self._containers.values()))

    def __len__(self) -> int:
        return len(self._containers)
