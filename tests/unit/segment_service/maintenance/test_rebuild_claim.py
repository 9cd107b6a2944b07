"""A rebuild of the control plane that takes long keeps others out until its end."""

from __future__ import annotations

import asyncio

import pytest

from pravega_common.errors import ConfigurationError
from pravega_common.services.cluster.cpo import PersistenceGroup
from segment_service.maintenance.cpo_rebuild import ClusterPlan, CPORebuild
from segment_service.plog.cluster_registration import ServerFacts
from segment_service.plog.plog_client import PlogSettings
from tests.support.backups import Place
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.cpo import InMemoryCPO

GROUPS = (PersistenceGroup("g0", ("one:6379",)),)
PLAN = ClusterPlan("test", GROUPS, (), (), (), ())


async def test_others_are_kept_out_to_the_end() -> None:
    clock = ManualClock()
    cpo = InMemoryCPO(clock)
    rebuild = CPORebuild(cpo, Place().chunks, "test", GROUPS, PlogSettings(), clock, 10_000)
    asked, may_answer = asyncio.Event(), asyncio.Event()

    async def ask(_: str) -> ServerFacts:
        asked.set()
        await may_answer.wait()
        return ServerFacts("run", "identity")

    work = asyncio.create_task(rebuild.carry_out(PLAN, ask))
    await asyncio.wait_for(asked.wait(), 10)
    for _ in range(30):
        await clock.advance(60)
    with pytest.raises(ConfigurationError, match="somebody else is rebuilding"):
        await asyncio.wait_for(rebuild.carry_out(PLAN, ask), 10)
    may_answer.set()
    await work
