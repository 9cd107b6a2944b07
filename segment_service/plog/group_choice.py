"""Chooses the persistence group of each new plog, so that the groups of a cluster fill up alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from pravega_common.services.cluster.cpo import PersistenceCluster, PersistenceGroup
from pravega_common.services.cluster.redis_audit import RedisMemory

expected_share_kept: Final = 0.9
"""Part of what was expected of chosen plogs that still counts after a round of samples: with two rounds a second, half
of it is left after 3 s. By then what was written shows in the samples."""


class GroupChoice(Protocol):
    """Chooses among groups. Implemented by ``FixedChoice`` and ``ChoiceByUse``; never waits for a server."""

    def saw(self, cluster: PersistenceCluster) -> None:
        """Hear of the groups that are registered, before any of them is chosen."""
        ...

    def candidates(self, groups: Sequence[str]) -> list[str]:
        """The groups, of those registered, that may get new plogs; at least one, in the order of their names."""
        ...

    def choose(self, groups: Sequence[str], container_id: int, block_bytes: int) -> str:
        """One of the candidates, for a new plog of a container that may grow to ``block_bytes``."""
        ...


class FixedChoice:
    """Spreads containers over the groups, without looking at their use."""

    def saw(self, cluster: PersistenceCluster) -> None:
        """Needs nothing of it."""

    def candidates(self, groups: Sequence[str]) -> list[str]:
        return sorted(groups)

    def choose(self, groups: Sequence[str], container_id: int, block_bytes: int) -> str:
        return sorted(groups)[container_id % len(groups)]


class ChoiceByUse:
    """Chooses the least used group, by samples of its servers' memory and by the plogs chosen since.

    One object for all logs of a store. ``preferred`` are the groups of the store's settings: a registered group that
    they do not name keeps its plogs and gets no new ones.
    """

    def __init__(self, preferred: Sequence[PersistenceGroup] = ()) -> None:
        self.groups: dict[str, tuple[str, ...]] = {group.name: group.servers for group in preferred}
        """Servers of every group seen, by name."""
        self._preferred = frozenset(self.groups)
        self.memory: dict[str, RedisMemory] = {}
        """The last sample of each server that answers, by its address, written by the part that samples."""
        self._expected_bytes: dict[str, float] = {}

    def needed(self, used: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """The servers, by group, of the groups that may get new plogs and of those that are used."""
        names = {*self.candidates(tuple(self.groups)), *used}
        return {name: servers for name, servers in self.groups.items() if name in names}

    def needed_servers(self, used: Iterable[str]) -> set[str]:
        """The same without their groups."""
        return {server for servers in self.needed(used).values() for server in servers}

    def saw(self, cluster: PersistenceCluster) -> None:
        self.groups.update((group.name, group.servers) for group in cluster.groups)

    def fade(self) -> None:
        """Let what was expected of chosen plogs count less: called once for each round of samples."""
        kept = {name: expected * expected_share_kept for name, expected in self._expected_bytes.items()}
        self._expected_bytes = {name: expected for name, expected in kept.items() if expected >= 1}

    def candidates(self, groups: Sequence[str]) -> list[str]:
        return sorted(name for name in groups if name in self._preferred) or sorted(groups)

    def choose(self, groups: Sequence[str], container_id: int, block_bytes: int) -> str:
        """A group of which the majority gave no answer to the last sample is chosen only if all are like that."""
        names = self.candidates(groups)
        turned = names[container_id % len(names) :] + names[: container_id % len(names)]
        limits = [memory.limit for name in names for memory in self._answers(name)]
        by_share = bool(limits) and all(limits)
        chosen = min(turned, key=lambda name: (not self._has_majority(name), self._use(name, by_share)))
        self._expected_bytes[chosen] = self._expected_bytes.get(chosen, 0.0) + block_bytes
        return chosen

    def is_short(self, name: str, share_max: float) -> bool:
        """Whether a server of the group uses more than this share of its memory limit."""
        return any(memory.used_share > share_max for memory in self._answers(name))

    def _use(self, name: str, by_share: bool) -> float:
        """Use of the fullest server: bytes, or the part of its limit where all servers have one."""
        expected = self._expected_bytes.get(name, 0.0)
        uses = [(memory.used + expected) / (memory.limit if by_share else 1) for memory in self._answers(name)]
        return max(uses, default=expected)

    def _answers(self, name: str) -> list[RedisMemory]:
        return [self.memory[server] for server in self.groups.get(name, ()) if server in self.memory]

    def _has_majority(self, name: str) -> bool:
        return 2 * len(self._answers(name)) > len(self.groups.get(name, ()))
