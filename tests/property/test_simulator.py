"""A few seeds of the simulator; ``scripts/simulate`` runs as many as one likes."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from tests.simulator.crash_points import favourite_of, store_failpoints
from tests.simulator.late_sources import SOURCE_DELETED
from tests.simulator.limits import JOURNAL, PLOG_LIMIT, SHARED, SMALL, exists
from tests.simulator.main import regression_seeds
from tests.simulator.old_defects import OLD_DEFECTS
from tests.simulator.settings import EXPECTED, FAMILIES, draw, family_of
from tests.simulator.simulation import simulate
from tests.simulator.trace import digest
from tests.support.repository import ROOT

SEEDS = 16
FOUND_BY = {
    "older-log-is-used": 0,
    "emptied-log-starts-afresh": 92,
    "full-tier1-stays-full": 239,
    "damage-stops-the-container": 9,
}
"""The seed that finds an old defect, in its family."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    outcome = simulate(draw(seed, EXPECTED))
    assert not outcome.violations, "\n".join(outcome.trace[-30:])


def test_the_limits_that_are_made_small_exist() -> None:
    assert not [name for name in (*SMALL, *SHARED, *JOURNAL, PLOG_LIMIT) if not exists(name)]


def test_every_family_asks_for_every_failpoint() -> None:
    pairs = {(family_of(seed, FAMILIES), favourite_of(seed)) for seed in range(2_000)}
    assert len(pairs) == len(FAMILIES) * len(store_failpoints())


def test_late_sources_lead_where_random_faults_do_not() -> None:
    """One in four of such seeds does; none of them may lose anything there."""
    seeds = [seed for seed in range(0, 2_000, 2) if draw(seed, EXPECTED).has_late_sources][:40]
    for seed in seeds:
        outcome = simulate(draw(seed, EXPECTED))
        assert not outcome.violations, "\n".join([f"seed {seed}", *outcome.trace[-30:]])
        if outcome.crashed.get(SOURCE_DELETED):
            return
    pytest.fail(f"none of {len(seeds)} seeds has a store killed at {SOURCE_DELETED}")


def test_what_failed_once() -> None:
    for seed, family in regression_seeds():
        if family in EXPECTED:
            outcome = simulate(draw(seed, (family,)))
            assert not outcome.violations, "\n".join([f"seed {seed}", *outcome.trace[-30:]])


def test_a_run_leaves_nothing_in_memory() -> None:
    simulate(draw(2, EXPECTED))
    gc.collect()
    simulate(draw(8, EXPECTED))
    left = gc.collect()
    assert left < 1_000, f"{left} objects: thousands of seeds in one process would fill its memory"


@pytest.mark.parametrize(("name", "seed"), FOUND_BY.items())
def test_an_old_defect_is_found_again(name: str, seed: int) -> None:
    """A simulator that no longer sees what it once was built for would pass every other test here."""
    settings = draw(seed, (OLD_DEFECTS[name].family,))
    with OLD_DEFECTS[name].unfixed():
        assert simulate(settings).violations
    assert not simulate(settings).violations


PROGRAM = """
import sys
import controller_service.service, pravega_spark.ledger  # a seed must not draw from what they register
from tests.simulator.settings import draw
from tests.simulator.simulation import simulate
from tests.simulator.trace import digest
outcome = simulate(draw(int(sys.argv[1]), ("crash",)))
print(digest(outcome.trace), outcome.callbacks)
"""


def test_a_seed_has_one_course_of_events() -> None:
    """The same trace twice in one process, and in another one with more modules and other hashes."""
    first, second = (simulate(draw(6, ("crash",))) for _ in range(2))
    assert first.trace == second.trace
    assert first.callbacks == second.callbacks
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM, "6"]
    other = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=ROOT)
    assert other.stdout.split() == [digest(first.trace), str(first.callbacks)]
