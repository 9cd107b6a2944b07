"""Stores and who owns which container: the part of a controller that a run needs, and the record of every start."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pravega_common.errors import DataCorruption, PravegaError
from pravega_common.hashing import container_of_segment
from pravega_common.invariants import InvariantViolation
from tests.simulator.history import History
from tests.simulator.oracle import RemoteCPO
from tests.simulator.processes import Process, ProcessState
from tests.simulator.settings import Settings
from tests.simulator.store import Store
from tests.simulator.tier1 import Tier1
from tests.simulator.tier2 import RemoteChunks
from tests.simulator.virtual_loop import VirtualClock, VirtualLoop


@dataclass(slots=True, eq=False)
class Attempt:
    """One start of a container."""

    store: Store
    container_id: int
    losses: int
    """Times that Tier 1 had lost something before."""
    epoch: int = 0
    acked: int = 0
    """Operations that it acknowledged."""
    error: BaseException | None = None


class Cluster:
    """``Witness`` of all stores of a run."""

    def __init__(
        self,
        loop: VirtualLoop,
        clock: VirtualClock,
        settings: Settings,
        tier1: Tier1,
        cpo: RemoteCPO,
        chunks: RemoteChunks,
        history: History,
        note: Callable[[str], None],
    ) -> None:
        self.stores: list[Store] = []
        self.attempts: list[Attempt] = []
        self.refusing: dict[int, DataCorruption] = {}
        """Containers whose last start ended with the statement that data is lost or damaged."""
        self.damaged: set[int] = set()
        """Ids of segments that had an object of theirs in Tier 2 damaged."""
        self._owners: dict[int, Store] = {}
        self._epochs: dict[int, int] = {}
        self._loop = loop
        self._clock = clock
        self._settings = settings
        self._tier1 = tier1
        self._cpo = cpo
        self._chunks = chunks
        self._history = history
        self._note = note

    def start_store(self) -> Store:
        """A new store, which takes over every container."""
        containers = range(self._settings.containers)
        name = f"store-{len(self.stores) + 1}"
        store = Store(
            name, containers, self._settings, self._tier1.addresses, self._cpo, self._chunks, self._clock, self
        )
        self.stores.append(store)
        self._owners = dict.fromkeys(containers, store)
        self._note(f"{name} starts")
        store.start()
        return store

    @property
    def current(self) -> Store:
        return self.stores[-1]

    @property
    def alive(self) -> Iterable[Store]:
        return [store for store in self.stores if store.process.is_alive]

    def zombies(self) -> list[Store]:
        return [store for store in self.stores[-4:-1] if store.process.is_alive]

    def kill(self, process: Process, why: str) -> None:
        if process.is_alive:
            self._note(f"{process.name} is killed {why}")
            process.kill()

    def resume(self, process: Process) -> None:
        if process.state is ProcessState.PAUSED:
            self._note(f"{process.name} wakes up")
            self._loop.run_again(process.resume())

    def container_of(self, segment: str) -> int:
        return container_of_segment(segment, self._settings.containers)

    def owner_of(self, segment: str) -> Store:
        return self._owners[self.container_of(segment)]

    def epoch_of(self, segment: str) -> int:
        return self._epochs.get(self.container_of(segment), 0)

    def event_acked(self, segment: str, epoch: int) -> None:
        self._history.acked_events += 1
        container_id = self.container_of(segment)
        for attempt in reversed(self.attempts):
            if attempt.container_id == container_id and attempt.epoch == epoch:
                attempt.acked += 1
                return

    # --- what stores say

    def owns(self, store: Store, container_id: int) -> bool:
        return self._owners.get(container_id) is store

    def container_starting(self, store: Store, container_id: int) -> int:
        self.attempts.append(Attempt(store, container_id, self._tier1.losses))
        return len(self.attempts) - 1

    def container_up(self, store: Store, attempt: int, epoch: int) -> None:
        found = self.attempts[attempt]
        found.epoch = epoch
        self._epochs[found.container_id] = max(epoch, self._epochs.get(found.container_id, 0))
        self.refusing.pop(found.container_id, None)
        self._note(f"{store.name}: container {found.container_id} is up in epoch {epoch}")

    def container_down(self, store: Store, attempt: int, error: BaseException | None) -> None:
        found = self.attempts[attempt]
        found.error = error
        self._note(f"{store.name}: container {found.container_id} is down: {error!r}")
        if isinstance(error, DataCorruption):
            self.refusing[found.container_id] = error
            self._check_refusal(found, error)
        elif isinstance(error, InvariantViolation) and self._tier1.losses:
            return  # as good as a refusal, if not as clear; what comes after it counts
        elif error is not None and not isinstance(error, PravegaError):
            self._history.violated("broken", f"container {found.container_id} died of {error!r}")

    def _check_refusal(self, attempt: Attempt, error: DataCorruption) -> None:
        container_id = attempt.container_id
        if not self._tier1.losses and not self.damaged:
            self._history.violated("refused", f"container {container_id} says that data was lost; none was: {error}")
        elif attempt.losses and attempt.acked and not self.damaged:
            text = f"container {container_id} acknowledged {attempt.acked} operations before it said: {error}"
            self._history.violated("silent loss", text)
