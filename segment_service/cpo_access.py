"""Makes the control plane oracle of a store's settings."""

from __future__ import annotations

from pravega_common.runtime.clock import Clock
from pravega_common.services.cluster.cpo import ControlPlaneOracle
from pravega_common.services.cluster.factory import make_cpo
from segment_service.config import SegmentStoreConfig


def configured_cpo(config: SegmentStoreConfig, clock: Clock) -> ControlPlaneOracle:
    """The CPO that the settings name; nothing is connected yet."""
    return make_cpo(
        config.cluster.cpo,
        allow_unsafe_redis=config.tier1.allow_unsafe_redis,
        clock=clock,
        access=config.redis.access(),
    )
