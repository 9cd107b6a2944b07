"""Every acknowledged call is there once and in order, the rest whole or absent, whenever the owner dies."""

from __future__ import annotations

import asyncio

import pytest

from tests.property.crash_model import CrashTest

SEEDS = 60
REGRESSIONS: tuple[int, ...] = ()
"""Seeds that failed once."""


@pytest.mark.parametrize("seed", [*range(SEEDS), *REGRESSIONS])
async def test_nothing_acknowledged_is_lost_and_nothing_else_appears(seed: int) -> None:
    async with asyncio.timeout(60):
        await CrashTest(seed).run(crashes=5, steps=120)
