"""The control plane oracle as a store reaches it: calls over the network, to a server that may be away or full."""

from __future__ import annotations

import random
from typing import Any, Final

from pravega_common.errors import Unavailable, UnknownOutcome
from pravega_common.services.cluster.redis_cpo import _TAKE_EPOCH
from tests.simulator.network import Network
from tests.simulator.redis_server import SimulatedRedis

CHANGES: Final = frozenset(
    {
        "set_once",
        "replace_constant",
        "put_persistence_cluster",
        "take_epoch",
        "raise_epoch",
        "put_metadata_plog",
        "put_assignment",
        "renew_lease",
    }
)

NEEDS_ROOM: Final = not _TAKE_EPOCH.body.lstrip().startswith("redis.call('UNLINK'")
"""Whether a full server refuses changes, as it does unless a script's first write is one that needs no memory."""


class RemoteCPO:
    """``ControlPlaneOracle``: every method of the in-memory one on ``server``."""

    def __init__(self, network: Network, server: SimulatedRedis, rng: random.Random) -> None:
        self._network = network
        self._server = server
        self._rng = rng

    async def close(self) -> None:
        """Does nothing: no connection is kept open."""

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)

        async def call(*args: Any) -> Any:
            return await self._network.call(self._do(method, args))

        return call

    async def _do(self, method: str, args: tuple[Any, ...]) -> Any:
        server = self._server
        if not server.accepts:
            raise Unavailable("the control plane oracle is not reachable")
        if method in CHANGES and NEEDS_ROOM and server.is_full:
            raise Unavailable("OOM: the control plane oracle's server is full")
        fate = self._rng.random()
        if fate < self._network.lost_answers / 2:
            raise UnknownOutcome(f"{method}: the request was lost")
        result = await getattr(server.cpo, method)(*args)
        if method in CHANGES:
            server.note_cpo_write(method, args)
        if fate < self._network.lost_answers:
            raise UnknownOutcome(f"{method}: the answer was lost")
        return result
