"""Gives a stream a history: random splits and merges, with bytes written in between."""

from __future__ import annotations

from random import Random

from controller_service.service import Controller
from controller_service.store.records import EpochRecord, SegmentRecord
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from tests.support.controller_in_memory import ControllerParts
from tests.support.eventually import eventually


async def stream_with_history(
    parts: ControllerParts, controller: Controller, scope: str, stream: str, segments: int, epochs: int, seed: int = 1
) -> None:
    """A stream that began with ``segments`` segments and has ``epochs`` epochs; each scaling replaces a few."""
    random = Random(seed)
    await controller.store.create_scope(scope)
    workflows = controller.parts.workflows
    await workflows.create.create(scope, stream, StreamConfiguration(ScalingPolicy.fixed(segments)))
    # A fixed number would not let the stream have fewer.
    by_rate = StreamConfiguration(ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 1_000, 2, 1))
    await workflows.update.update(f"policy-{stream}", scope, stream, by_rate)
    for _ in range(epochs - 1):
        current = await _current(controller, scope, stream)
        for segment in current.segments:
            parts.access.append(segment.name(scope, stream), int(random.paretovariate(1) * 1000))
        await _scale(controller, scope, stream, current, random)


async def _scale(controller: Controller, scope: str, stream: str, current: EpochRecord, random: Random) -> None:
    chosen = random.randrange(len(current.segments))
    replaced, ranges = _merge(current, chosen) if random.random() < 0.5 else _split(current.segments[chosen])
    to_seal = [segment.segment_id for segment in replaced]
    await controller.parts.workflows.scale.start(scope, stream, to_seal, ranges)

    async def scaled() -> bool:
        context = await controller.store.open(scope, stream)
        is_over = (await context.state()).value == "active"
        return is_over and (await context.current_epoch()).epoch > current.epoch

    await eventually(scaled, f"epoch {current.epoch + 1}")


async def _current(controller: Controller, scope: str, stream: str) -> EpochRecord:
    return await (await controller.store.open(scope, stream)).current_epoch()


def _split(segment: SegmentRecord) -> tuple[list[SegmentRecord], list[tuple[float, float]]]:
    middle = (segment.key_start + segment.key_end) / 2
    return [segment], [(segment.key_start, middle), (middle, segment.key_end)]


def _merge(epoch: EpochRecord, first: int) -> tuple[list[SegmentRecord], list[tuple[float, float]]]:
    """A segment with its upper neighbour; split instead where there is none, or too few are left."""
    if first + 1 == len(epoch.segments) or len(epoch.segments) < 3:
        return _split(epoch.segments[first])
    lower, upper = epoch.segments[first : first + 2]
    return [lower, upper], [(lower.key_start, upper.key_end)]
