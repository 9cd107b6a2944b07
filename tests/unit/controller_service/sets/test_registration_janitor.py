"""Registrations that a crash left behind end, those of living batches stay."""

from __future__ import annotations

import pytest

from controller_service.sets import transaction_set_service
from controller_service.sets.registration_janitor import registration_idle_ms
from controller_service.sets.sink_store import REGISTRATIONS_TABLE
from controller_service.sets.transaction_set import Verdict
from tests.support.transaction_world import Crashed, World

S, T = "scope", "stream"
Q, D = "query", "scope/stream"
pytestmark = pytest.mark.timeout(60)


async def registrations(world: World) -> list[str]:
    return sorted(key for key, _ in (await world.store.scan(REGISTRATIONS_TABLE, b"", 1_000)).entries)


async def test_what_a_slow_task_wrote_after_its_batch_ended_is_removed(world: World) -> None:
    """The controller dies before it sees that the batch is decided."""
    doomed, other = await world.instance(), await world.instance()
    member, late = await world.member(other, S, T, "a", 0), await world.member(other, S, T, "b", 1)
    await world.run(other.sets.register(Q, D, "run", 0, [member]))

    async def dies() -> None:
        taken = await other.sets.commit(Q, D, "run", 0, [member], 1, 10)
        assert taken.verdict is Verdict.COMMITTED
        await other.sets._finisher._clear_batches("5:query:scope/stream")
        raise Crashed

    write = doomed.sets._write_registrations

    async def slow_write(key: str, run_id: str, batch_id: int, members: list[object]) -> str:
        with pytest.raises(Crashed):
            await dies()
        await write(key, run_id, batch_id, members)  # type: ignore[arg-type]
        raise Crashed

    doomed.sets._write_registrations = slow_write  # type: ignore[method-assign,assignment]
    with pytest.raises(Crashed):
        await world.run(doomed.sets.register(Q, D, "run", 0, [late]))
    await world.run(doomed.kill())
    assert len(await registrations(world)) == 1
    await world.clock.pass_time(registration_idle_ms / 1000 + 2 * transaction_set_service.sweep_period_s)
    assert await registrations(world) == []


async def test_registrations_of_a_living_batch_stay(world: World) -> None:
    one = await world.instance()
    member = await world.member(one, S, T, "a", 0)
    await world.run(one.sets.register(Q, D, "run", 3, [member]))
    await world.run(one.sets._janitor.look(world.clock.wall_ms() + 2 * registration_idle_ms))
    [name] = await registrations(world)
    assert name.startswith("3/0/")


async def test_a_task_that_calls_at_the_same_time_keeps_its_registration(world: World) -> None:
    one = await world.instance()
    member = await world.member(one, S, T, "a", 0)
    await world.run(one.sets._sinks.add_registrations("5:query:scope/stream", 7, 0, [member], 1))
    [found], _ = await one.sets._sinks.registrations_page(b"")
    await world.run(one.sets._sinks.add_registrations("5:query:scope/stream", 7, 0, [], 2))
    await world.run(one.sets._janitor._remove_if_lost(found))
    assert len(await registrations(world)) == 1
