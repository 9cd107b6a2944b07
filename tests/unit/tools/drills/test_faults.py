"""Reads pages of services and writes rows of the fault drill, and holds what it expects against rules and codes."""

from __future__ import annotations

import json
import re

import pytest

from tests.drills.faults.cluster import KINDS
from tests.drills.faults.faults import FAULTS, Fault
from tests.drills.faults.main import parse
from tests.drills.faults.run import Row
from tests.drills.faults.table import markdown
from tests.drills.faults.watch import ALERTS, NO_ANSWER, SOURCES, STORES, Sighting, said_by_health, said_by_window
from tests.support.alert_rules import alerts, metrics_of

PROBLEM = {"code": "slow", "text": "it is slow", "remedy": "wait", "stops_work": False}


def test_a_page_that_does_not_answer() -> None:
    assert said_by_health(None) == said_by_window(None) == {NO_ANSWER: ""}


def test_problems_of_a_store_and_of_a_controller() -> None:
    assert said_by_health(json.dumps({"problems": [PROBLEM]})) == {"slow": "wait"}
    parts = {"GRPCServer": {"status": "UP"}, "membership": {"status": "DOWN"}}
    page = {"details": {"problems": [PROBLEM]}, "children": parts}
    assert said_by_health(json.dumps(page)) == {"part membership": "", "slow": "wait"}
    assert said_by_health(json.dumps({"details": {}, "children": {}})) == {}
    assert said_by_window(json.dumps({"problems": [PROBLEM]})) == {"slow": "wait"}


def test_a_row_has_what_was_said_during_the_fault() -> None:
    said = {
        STORES: {"late": Sighting(9.0, 9.0), NO_ANSWER: Sighting(0.6, 3.0), "slow": Sighting(0.4, 1.0, "wait")},
        ALERTS: {"StoreDown": Sighting(1.2, 2.0)},
    }
    table = markdown([Row("f", "a | b", said, doctor=["commits"], lasted_s=4.0, well_after_s=2.6)])
    assert "| `f`: a / b | – | `slow` 0 s<br>no answer 1 s | – | `StoreDown` 1 s + 1m | – | commits | 3 s |" in table
    assert "| `slow` | wait |" in table


@pytest.mark.parametrize("fault", FAULTS.values(), ids=lambda fault: str(fault.name))
def test_what_is_expected_exists(fault: Fault) -> None:
    assert fault.told.keys() <= set(SOURCES) and fault.kind in KINDS
    assert set(fault.told.get(ALERTS, "StoreDown").split("|")) <= {rule["alert"] for rule in alerts()}
    assert metrics_of(fault.metric)
    codes = {word for words in fault.told.values() for word in words.split("|")}
    assert all(re.fullmatch(r"[a-z0-9-]+|[A-Z]\w+", code) or code == NO_ANSWER for code in codes)


def test_an_unknown_fault_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--faults", "no-such-fault"])
    assert "no fault 'no-such-fault'; there are: store-stopped," in capsys.readouterr().err
