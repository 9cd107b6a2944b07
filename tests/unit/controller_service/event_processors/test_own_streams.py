"""Asks a controller's own records for the segments between two cuts, as its readers do."""

from __future__ import annotations

import pytest

from controller_service.event_processors.own_streams import OwnStreams
from pravega_common.errors import InvalidArgument
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from tests.support.controller_in_memory import ControllerParts
from tests.support.eventually import eventually

SCOPE, STREAM = "s", "t"
LOWER, UPPER = 1 << 32 | 1, 1 << 32 | 2


async def test_segments_lie_between_cuts_that_follow_one_another() -> None:
    controller = ControllerParts().controller()
    await controller.start()
    try:
        await controller.store.create_scope(SCOPE)
        await controller.parts.workflows.create.create(SCOPE, STREAM, StreamConfiguration(ScalingPolicy.fixed(1)))
        await controller.parts.workflows.scale.start(SCOPE, STREAM, [0], [(0.0, 0.5), (0.5, 1.0)])
        streams = OwnStreams(controller.store)

        async def is_scaled() -> bool:
            return len(await streams.current_segments(SCOPE, STREAM)) == 2

        await eventually(is_scaled)
        tail = {LOWER: 0, UPPER: 0}
        assert sorted(await streams.segments_between(SCOPE, STREAM, {0: 0}, tail)) == [0, LOWER, UPPER]
        for start, end in ((tail, {0: 5}), ({0: 6}, {0: 5})):
            with pytest.raises(InvalidArgument, match="lies before"):
                await streams.segments_between(SCOPE, STREAM, start, end)
    finally:
        await controller.stop()
