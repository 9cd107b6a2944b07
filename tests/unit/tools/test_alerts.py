"""Holds alert rules, dashboard and runbook against each other, the metrics and the problems that services name."""

from __future__ import annotations

import re
import runpy
import subprocess

import pytest

from tests.support.alert_rules import alerts, expressions, metrics_of, panels
from tests.support.prometheus import CONFIGURATION, program
from tests.support.repository import ROOT

RUNBOOK = (ROOT / "docs" / "operations.md").read_text()
METRICS = runpy.run_path(str(ROOT / "scripts" / "lib" / "write_metrics.py"))
FROM_ELSEWHERE = {"up", "process_open_fds", "process_max_fds", "process_resident_memory_bytes"}


def known_metrics() -> set[str]:
    rows = [*METRICS["store_rows"](), *METRICS["controller_rows"]()]
    parts = {
        f"{name}{part}" for name, kind, *_ in rows if kind == "histogram" for part in ("_bucket", "_sum", "_count")
    }
    return {name for name, kind, *_ in rows if kind != "histogram"} | parts | FROM_ELSEWHERE


def test_every_rule_is_complete() -> None:
    for rule in alerts():
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}, rule
        assert re.fullmatch(r"\d+[smh]", rule["for"])
        assert rule["labels"] == {"severity": rule["labels"]["severity"]}
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"
    names = [rule["alert"] for rule in alerts()]
    assert len(names) == len(set(names)) > 15


def test_every_metric_of_an_expression_exists() -> None:
    known = known_metrics()
    for expression in expressions():
        assert metrics_of(expression) <= known, expression


@pytest.mark.parametrize(
    "wrong",
    ["rate(pravega_store_ready[5m]", "raet(pravega_store_ready[5m])", "pravega_store_ready) == 0", "1 > 0", "a ! b"],
)
def test_the_check_finds_what_prometheus_would_not_read(wrong: str) -> None:
    with pytest.raises(ValueError):
        metrics_of(wrong)


def test_what_the_check_finds() -> None:
    expression = 'sum by (le, x) (rate(a_bucket{b="c",d=~"e|f"}[5m])) / on (x) g > 0.5 or h == 0'
    assert metrics_of(expression) == {"a_bucket", "g", "h"}


def test_problems_are_named_as_services_name_them() -> None:
    sources = "".join(
        path.read_text()
        for path in (
            ROOT / "segment_service" / "health" / "store_health.py",
            ROOT / "controller_service" / "cluster" / "controller_health.py",
            ROOT / "pravega_common" / "services" / "tls.py",
            ROOT / "pravega_common" / "services" / "cluster" / "oracle_clock.py",
        )
    )
    codes = set(re.findall(r'Problem\("([a-z0-9-]+)"', sources))
    assert len(codes) > 8
    for expression in expressions():
        assert set(re.findall(r'code="([^"]*)"', expression)) <= codes


def test_the_runbook_has_each_alert_and_no_other() -> None:
    _, _, rest = RUNBOOK.partition("\n## Alerts\n")
    part, _, _ = rest.partition("\n## ")
    sections = dict(re.findall(r"### (\w+)\n(.*?)(?=\n### |\Z)", part, re.DOTALL))
    assert list(sections) == [rule["alert"] for rule in alerts()]
    for rule in alerts():
        text = sections[rule["alert"]]
        assert f"({rule['labels']['severity']})" in text
        assert [word in text for word in ("* **Means:** ", "* **Look at:** ", "* **Do:** ")] == [True] * 3


def test_each_panel_asks_one_question() -> None:
    titles = [panel["title"] for panel in panels()]
    assert all(title.endswith("?") for title in titles) and len(titles) == len(set(titles))
    assert len({panel["id"] for panel in panels()}) == len(titles)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels()}
    assert len(places) == len(titles), "a panel lies on another one"


@pytest.mark.skipif(program("promtool") is None, reason="no promtool: scripts/setup --prometheus")
def test_promtool_reads_the_rules() -> None:
    command = [str(program("promtool")), "check", "config", str(CONFIGURATION)]  # with the rules that it names
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
