"""Reads the page of metrics of a running service."""

from __future__ import annotations

import urllib.request
from typing import Final

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

page_time_max_s: Final = 10.0


def families_of(page: str) -> list[Metric]:
    """The metrics on a page at ``host:port/path``."""
    with urllib.request.urlopen(f"http://{page}", timeout=page_time_max_s) as answer:
        return list(text_string_to_metric_families(answer.read().decode()))
