"""Reads the alert rules and the dashboard, and finds the metrics that their expressions name."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from tests.support.plain_yaml import read_yaml
from tests.support.repository import ROOT

RULES: Final = ROOT / "conf" / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD: Final = ROOT / "conf" / "deploy" / "grafana" / "dashboard.json"
FUNCTIONS: Final = frozenset(("histogram_quantile", "rate", "increase", "delta", "sum", "min", "max", "count", "topk"))
_WORDS: Final = frozenset(("by", "on", "or", "and", "unless", "group_left"))
TOKEN: Final = re.compile(
    r"""\s+|"[^"]*"|\$__rate_interval|\d+(?:\.\d+)?[smhd]?|[A-Za-z_:][\w:]*|=~|!~|!=|==|>=|<=|[-+*/<>=(){}\[\],]"""
)
_PAIRS: Final = {")": "(", "]": "[", "}": "{"}


def alerts() -> list[dict[str, Any]]:
    (document,) = read_yaml(RULES.read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def expressions() -> list[str]:
    """All expressions of both files."""
    shown = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [rule["expr"] for rule in alerts()] + shown


def metrics_of(expression: str) -> set[str]:
    """The metrics of an expression; ``ValueError`` for one that Prometheus would not read."""
    names: set[str] = set()
    open_brackets: list[str] = []
    label_list = False
    place = 0
    while place < len(expression):
        match = TOKEN.match(expression, place)
        if match is None:
            raise ValueError(f"{expression[place:]!r} in {expression}")
        token, place = match[0], match.end()
        if token in ("by", "on"):
            label_list = True
        elif token in "([{":
            open_brackets.append("labels" if label_list and token == "(" else token)
            label_list = False
        elif token in _PAIRS:
            if not open_brackets or open_brackets.pop() not in (_PAIRS[token], "labels"):
                raise ValueError(f"{token} closes nothing in {expression}")
        elif re.fullmatch(r"[A-Za-z_:][\w:]*", token) and not {"{", "labels"} & set(open_brackets):
            is_call = expression[place:].lstrip().startswith(("(", "by"))
            if is_call and token not in FUNCTIONS | _WORDS:
                raise ValueError(f"no function {token}: {expression}")
            if not is_call and token not in _WORDS:
                names.add(token)
    if open_brackets or not names:
        raise ValueError(f"incomplete: {expression}")
    return names
