"""The command names what a restore loses, and what has to be looked at."""

from __future__ import annotations

import pytest

from segment_service.maintenance import restore_command
from segment_service.maintenance.restore_plan import RestorePlan
from segment_service.maintenance.store_restore import ContainerOutcome


def test_the_plan_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    plan = RestorePlan(3, 1, 90, 70, 5, segments=4, length=400)
    plan.shorter.add("scope/stream/1.#epoch.0", 30, 20)
    plan.maybe_merged.add("scope/stream/0.#epoch.0#transaction.7", 12, 0)
    restore_command.print_outcome(ContainerOutcome(3, plan))
    restore_command.print_outcome(ContainerOutcome(4, None, "it never ran"))
    assert capsys.readouterr().out == (
        "container 3: 4 segments with 400 bytes are served again\n"
        "  lost: operations above 70 as far as Tier 2 does not show their effect, those above 90 in any case\n"
        "  1 segments lose bytes that the metadata table knows of: 10 bytes lost\n"
        "    scope/stream/1.#epoch.0: length 30, Tier 2 has 20\n"
        "  1 transactions come back open, and their 12 bytes may be in their streams already: read these before you "
        "let the transactions be committed\n"
        "    scope/stream/0.#epoch.0#transaction.7\n"
        "container 4: nothing to restore: it never ran\n"
    )
