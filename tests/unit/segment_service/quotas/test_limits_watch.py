"""What a store makes of the record of all limits."""

from __future__ import annotations

import pytest

from pravega_common.services.cluster.byte_limits import BYTE_LIMITS_KEY, AllByteLimits, ByteLimits
from pravega_common.services.cluster.registry import SEGMENT_STORE_KIND, Member
from segment_service.quotas.limits_watch import LimitsWatch, period_s
from segment_service.quotas.scope_buckets import ByteQuotas, ScopeBuckets
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.cpo import InMemoryCPO

SEGMENT = "scope/stream/0.#epoch.0"


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cpo = InMemoryCPO(self.clock)
        self.quotas = ByteQuotas(self.clock)
        self.watch = LimitsWatch(self.quotas, self.cpo, self.clock)
        self._number = 0

    async def limit(self, limits: dict[str, ByteLimits]) -> None:
        self._number += 1
        await self.write(AllByteLimits(self._number, limits).encode())

    async def write(self, text: str) -> None:
        await self.cpo.replace_constant(BYTE_LIMITS_KEY, await self.cpo.get_constant(BYTE_LIMITS_KEY), text)

    async def stores(self, count: int) -> None:
        for number in range(count):
            await self.cpo.renew_lease(SEGMENT_STORE_KIND, f"s{number}", Member("h", 1).to_payload(), 1_000_000)


def rate_of(buckets: ScopeBuckets, clock: ManualClock) -> float | None:
    """Nothing but a private field shows it without time passing."""
    bucket = buckets.of(SEGMENT)
    return None if bucket is None else bucket._rate


async def test_a_store_holds_its_share() -> None:
    scene = Scene()
    await scene.stores(4)
    await scene.limit({"scope": ByteLimits(400_000, None), "other": ByteLimits(None, 100_000)})
    await scene.watch.look()
    assert rate_of(scene.quotas.inward, scene.clock) == 100_000
    assert rate_of(scene.quotas.outward, scene.clock) is None
    assert scene.quotas.outward.of("other/t/0") is not None


async def test_changes_are_seen_after_a_period() -> None:
    scene = Scene()
    await scene.stores(1)
    await scene.watch.start()
    await scene.clock.advance(0)
    assert not scene.quotas.inward and not scene.quotas.outward
    await scene.limit({"scope": ByteLimits(400_000)})
    await scene.clock.advance(period_s)
    first = scene.quotas.inward.of(SEGMENT)
    await scene.limit({"scope": ByteLimits(300_000)})
    await scene.clock.advance(period_s)
    assert scene.quotas.inward.of(SEGMENT) is first
    assert rate_of(scene.quotas.inward, scene.clock) == 300_000
    await scene.limit({})
    await scene.clock.advance(period_s)
    assert not scene.quotas.inward and scene.quotas.inward.of(SEGMENT) is None
    await scene.watch.stop()


@pytest.mark.parametrize("fault", ["damage", "silence"])
async def test_the_limits_read_last_are_held(fault: str) -> None:
    scene = Scene()
    await scene.stores(1)
    await scene.limit({"scope": ByteLimits(400_000)})
    await scene.watch.look()
    if fault == "damage":
        await scene.write("[]")
    else:
        scene.cpo.unavailable = True
    await scene.watch.look()
    assert rate_of(scene.quotas.inward, scene.clock) == 400_000


async def test_the_scope_of_the_system_is_never_limited() -> None:
    scene = Scene()
    await scene.limit({"scope": ByteLimits(400_000, 400_000), "_system": ByteLimits(1, 1)})
    await scene.watch.look()
    for buckets in (scene.quotas.inward, scene.quotas.outward):
        assert buckets.of("_system/_tables/scopes") is None
        assert buckets.of("scope/_MARKstream/0.#epoch.0") is buckets.of("scope/_RGgroup/0.#epoch.0") is not None


async def test_waited_time_outlives_the_limit() -> None:
    scene = Scene()
    await scene.limit({"scope": ByteLimits(1_000)})
    await scene.watch.look()
    bucket = scene.quotas.inward.of(SEGMENT)
    assert bucket is not None
    bucket.waited_s = 7.0
    await scene.limit({})
    await scene.watch.look()
    assert scene.quotas.inward.throttled_s == 7.0
