"""Writes the metrics that the services register into docs/metrics.md.

A test holds the document against the code.

usage: write_metrics.py [DOCUMENT]
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

from prometheus_client import REGISTRY
from prometheus_client.core import Metric

from controller_service.api.rest.health import HealthRegistry
from controller_service.api.rest.metrics import ControllerCollector
from controller_service.config import ControllerConfig
from controller_service.service import Controller, make_backends
from pravega_common.runtime.clock import SystemClock
from segment_service.config import SegmentStoreConfig, Tier2Section
from segment_service.service import SegmentStoreProcess

DOCUMENT: Final = Path("docs") / "metrics.md"
START, END = "<!-- metrics of {}: written by scripts/lib/write_metrics.py -->", "<!-- end of metrics of {} -->"
Row = tuple[str, str, str, str]
"""Name, type, labels and meaning."""


def store_rows() -> list[Row]:
    """The metrics of a segment store, as those of one that was never started."""
    store = SegmentStoreProcess(SegmentStoreConfig(tier2=Tier2Section(url="file:///nowhere")))
    return sorted(_rows(store.collector.collect()))


def controller_rows() -> list[Row]:
    """The metrics of a controller."""
    controller = Controller(ControllerConfig(), make_backends(ControllerConfig(), SystemClock(), Random(0)))
    health = HealthRegistry(controller.judge)
    known = controller.known_subscribers, controller.known_sinks
    own = ControllerCollector(health, *known, controller.watermark_ages).collect()
    return sorted([*_rows(own), *_registered()])


def _rows(families: Iterable[Metric]) -> Iterator[Row]:
    for family in families:
        labels: tuple[str, ...] = getattr(family, "_labelnames", ())
        yield _row(family.name, family.type, labels, family.documentation)


def _registered() -> Iterator[Row]:
    """Those that are counted where they happen, in the registry of the process."""
    kept: dict[str, Any] = REGISTRY._names_to_collectors
    for collector in set(kept.values()):
        name = getattr(collector, "_name", "")
        if name.startswith("pravega_"):
            yield _row(name, collector._type, collector._labelnames, collector._documentation)


def _row(name: str, kind: str, labels: tuple[str, ...], text: str) -> Row:
    return f"{name}_total" if kind == "counter" else name, kind, ", ".join(labels), text


def table(rows: Iterable[Row]) -> str:
    lines = [f"| `{name}` | {kind} | {labels} | {text} |" for name, kind, labels, text in rows]
    return "\n".join(["| metric | type | labels | meaning |", "|---|---|---|---|", *lines])


def with_metrics(document: str) -> str:
    """Returns the document with the present tables between their marks."""
    for service, rows in (("a segment store", store_rows()), ("a controller", controller_rows())):
        start, end = START.format(service), END.format(service)
        before, _, rest = document.partition(start)
        _, _, after = rest.partition(end)
        document = f"{before}{start}\n\n{table(rows)}\n\n{end}{after}"
    return document


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENT
    path.write_text(with_metrics(path.read_text()))
