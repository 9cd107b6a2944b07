"""Lets operations pile up that Tier 2 does not take, those without bytes too: the store stays bounded and goes on."""

from __future__ import annotations

import pytest

from pravega_common.errors import Throttled
from segment_service.contracts.attributes import AttributeId, AttributeUpdate, AttributeUpdateType
from segment_service.metadata.back_pressure import StoreBackPressure
from tests.support.containers import ContainerKit
from tests.support.eventually import eventually

UPDATE = AttributeUpdate(AttributeId(b"a" * 16), AttributeUpdateType.REPLACE, 1)


async def test_operations_without_bytes_are_bounded() -> None:
    kit = ContainerKit()
    kit.back_pressure = StoreBackPressure(1 << 20, operations_max=100)
    container = await kit.open()
    await container.create_segment("segment")
    with pytest.raises(Throttled, match="more than the limit of 150"):
        for _ in range(200):
            await container.update_attributes("segment", [UPDATE])
    assert not kit.back_pressure.is_open
    assert 150 <= kit.back_pressure.operations == container.pending.operations < 160
    for call in (container.seal("segment"), container.create_segment("other"), container.merge("segment", "other")):
        with pytest.raises(Throttled):
            await call
    held = container.pending.operations
    await container.stop()
    assert kit.back_pressure.operations == 0 and kit.back_pressure.is_open
    # The next owner holds them again, and goes on once Tier 2 takes them.
    container = await kit.open()
    assert kit.back_pressure.operations >= held
    await container.stop()
    kit.write_to_tier2()
    container = await kit.open()
    await eventually(lambda: kit.back_pressure.is_open, "the storage writer to be through")
    await container.update_attributes("segment", [UPDATE])
    await container.stop()


async def test_a_damaged_segment_can_be_deleted_beyond_the_limit() -> None:
    """It may be what holds the operations."""
    kit = ContainerKit()
    kit.back_pressure = StoreBackPressure(1 << 20, operations_max=100)
    container = await kit.open()
    for name in ("segment", "hurt"):
        await container.create_segment(name)
    while not kit.back_pressure.refuses_operations:
        await container.update_attributes("segment", [UPDATE])
    hurt = container.metadata.by_name("hurt")
    assert hurt is not None
    container.metadata.quarantine.hold(hurt.segment_id, "hurt", "its manifest is lost")
    with pytest.raises(Throttled):
        await container.delete("segment")
    await container.delete("hurt")
    assert container.metadata.by_name("hurt") is None
    await container.stop()
