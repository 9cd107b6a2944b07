"""Checks that a sink with a secret answers its own runs only, and that operators have a way out."""

from __future__ import annotations

import pytest

from controller_service.sets.sink_store import SETS_TABLE
from controller_service.sets.transaction_set import Verdict
from pravega_common.errors import AccessDenied, InvalidArgument, NotFound
from tests.support.transaction_world import Instance, World

S, T = "scope", "stream"
Q, D = "query", "scope/stream"
MINE, THEIRS = b"m" * 32, b"t" * 32
batch_max = 2**63 - 1
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
async def one(world: World) -> Instance:
    return await world.instance()


async def commit(world: World, one: Instance, batch: int, secret: bytes, run: str = "r1") -> Verdict:
    return (await world.run(one.sets.commit(Q, D, run, batch, [], 0, 0, secret))).verdict


async def test_a_stranger_neither_joins_nor_fences_nor_blocks_nor_asks(world: World, one: Instance) -> None:
    member = await world.member(one, S, T, "a", 0)
    await world.run(one.sets.register(Q, D, "r1", 0, [member], MINE))
    assert await commit(world, one, 0, MINE) is Verdict.COMMITTED
    for secret in (b"", THEIRS):
        for batch in (0, 1, batch_max):
            with pytest.raises(AccessDenied, match=r"docs/security\.md 6"):
                await commit(world, one, batch, secret, "stranger")
            with pytest.raises(AccessDenied):
                await world.run(one.sets.register(Q, D, "stranger", batch, [], secret))
            with pytest.raises(AccessDenied):
                await world.run(one.sets.get(Q, D, batch, secret))
    assert await commit(world, one, 1, MINE) is Verdict.COMMITTED
    [record], _ = await world.run(one.sets.list_sinks())
    assert (record.runs, record.last_batch_id) == (("r1",), 1)
    assert (await world.run(one.sets.get(Q, D, 1, is_operator=True))).last_batch_id == 1


async def test_only_a_hash_is_stored(world: World, one: Instance) -> None:
    await commit(world, one, 0, MINE)
    [(_, stored)] = (await world.store.scan(SETS_TABLE, b"", 10)).entries
    assert MINE not in stored.value and MINE.hex().encode() not in stored.value


async def test_a_secret_of_another_length_is_none(world: World, one: Instance) -> None:
    for secret in (b"short", b"l" * 33):
        with pytest.raises(InvalidArgument, match="must have 32"):
            await commit(world, one, 0, secret)


async def test_who_lost_the_secret_gets_another_from_an_operator(world: World, one: Instance) -> None:
    await commit(world, one, 5, MINE)
    await world.run(one.sets.forget(Q, D, secret_only=True))
    assert await commit(world, one, 5, THEIRS, "r2") is Verdict.ALREADY_COMMITTED
    with pytest.raises(AccessDenied):
        await commit(world, one, 6, MINE)


async def test_a_batch_of_the_largest_number_blocks_until_an_operator_forgets_the_sink(
    world: World, one: Instance
) -> None:
    await commit(world, one, batch_max, MINE)
    assert await commit(world, one, 6, MINE) is Verdict.CHECKPOINT_BEHIND_SINK
    await world.run(one.sets.forget(Q, D))
    assert await commit(world, one, 6, MINE) is Verdict.COMMITTED


async def test_a_sink_with_work_to_do_is_not_forgotten(world: World, one: Instance) -> None:
    with pytest.raises(NotFound):
        await world.run(one.sets.forget(Q, D))
    member = await world.member(one, S, T, "a", 0)
    await world.run(one.sets.register(Q, D, "r1", 0, [member], MINE))
    with pytest.raises(InvalidArgument, match="not finished"):
        await world.run(one.sets.forget(Q, D))
    assert (await world.run(one.sets.commit(Q, D, "r1", 0, [member], 1, 10, MINE))).verdict is Verdict.COMMITTED
    await world.clock.pass_time(60)
    await world.run(one.sets.forget(Q, D))
    [record], _ = await world.run(one.sets.list_sinks())
    assert (record.last, record.secret_hash) == (None, "")
