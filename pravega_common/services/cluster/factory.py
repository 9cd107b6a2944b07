"""Makes the control plane oracle that a setting names."""

from __future__ import annotations

from pathlib import Path

from pravega_common.runtime.clock import Clock
from pravega_common.services.cluster.cpo import ControlPlaneOracle
from pravega_common.services.cluster.sqlite_cpo import SqliteCPO
from pravega_common.services.redis_access import OPEN_ACCESS, RedisAccess


def make_cpo(
    address: str, *, allow_unsafe_redis: bool, clock: Clock, access: RedisAccess = OPEN_ACCESS
) -> ControlPlaneOracle:
    """The oracle at ``address``, as settings hold it: of a Redis, or ``file:/path``. Nothing is connected yet."""
    if address.startswith("file:"):
        return SqliteCPO(Path(address.removeprefix("file:")), clock)
    from pravega_common.services.cluster.redis_cpo import RedisCPO  # its client takes 0.15 s to import

    return RedisCPO(address, allow_unsafe_redis=allow_unsafe_redis, clock=clock, access=access)
