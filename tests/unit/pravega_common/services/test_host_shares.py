"""Shares of hosts: what is free, how long the pause is beyond, and that hosts are forgotten."""

from __future__ import annotations

import pytest

from pravega_common.services.host_shares import HostShares, forget_period_s, hosts_max
from tests.support.fakes.clock import ManualClock

HOST = "10.0.0.1"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def shares(clock: ManualClock) -> HostShares:
    return HostShares(clock, per_s=100, burst_s=2.0, pause_max_s=3.0)


async def test_a_burst_is_free_and_comes_back_with_time(shares: HostShares, clock: ManualClock) -> None:
    assert shares.note(HOST, 200) == 0
    assert shares.note(HOST, 10) == pytest.approx(0.1)
    assert shares.note("other") == 0
    await clock.advance(0.05)
    assert shares.pause_s(HOST) == pytest.approx(0.05)
    await clock.advance(3.0)
    assert shares.note(HOST, 200) == 0


async def test_who_waits_as_long_as_told_is_let_through_at_the_rate_of_the_share(
    shares: HostShares, clock: ManualClock
) -> None:
    shares.note(HOST, 200)
    pauses = [shares.note(HOST) for _ in range(10)]
    assert pauses == pytest.approx([number / 100 for number in range(1, 11)])


def test_no_pause_is_longer_than_the_limit(shares: HostShares) -> None:
    assert shares.note(HOST, 1_000_000_000) == pytest.approx(3.0)


async def test_hosts_without_debts_are_forgotten(shares: HostShares, clock: ManualClock) -> None:
    for number in range(hosts_max):
        shares.note(f"host-{number}")
    await clock.advance(forget_period_s)
    shares.note("one-more", 201)
    assert len(shares._paid_until_s) == 1
    assert shares.pause_s("one-more") > 0
