"""Says how every ``ControlPlaneOracle`` behaves whose clock is set back."""

from __future__ import annotations

from typing import Protocol

from pravega_common.services.settings import lease_ms_max
from tests.contract.control_plane_oracle_contract import Pair


class SettableClock(Protocol):
    """The clock that leases run by."""

    ahead_ms: int
    """By how much a test set it, in whole seconds."""


class ClockSetBackContract:
    """Says how a ``ControlPlaneOracle`` behaves whose clock is set back. A subclass gives two fixtures: ``cpos``, two
    connections to the same, empty oracle, and ``clock``."""

    async def test_leases_of_before_the_clock_went_back_have_ended(self, cpos: Pair, clock: SettableClock) -> None:
        """A machine without a battery clock, after a power cut: who is dead neither leads nor lives."""
        one, two = cpos
        clock.ahead_ms = 3_600_000
        assert await one.try_lead("r", "a", 10_000) and await one.try_lock("l", "a", 10_000)
        await one.renew_lease("k", "a", {}, 10_000)
        clock.ahead_ms -= 60_000
        assert (await two.leader("r"), set(await two.members("k"))) == ("a", {"a"}), "a small step ends nothing"
        clock.ahead_ms = 0
        assert (await two.leader("r"), await two.members("k")) == (None, {})
        assert await two.try_lead("r", "b", 10_000) and await two.try_lock("l", "b", 10_000)
        await two.renew_lease("k", "b", {}, 10_000)
        clock.ahead_ms += 3_600_000 - lease_ms_max // 2
        assert "a" not in await two.members("k"), "it does not come to life as its end draws near"
