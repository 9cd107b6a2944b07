"""Asks all services again and again what they say of themselves, and keeps when each of them said what."""

from __future__ import annotations

import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final

from tests.drills.faults.cluster import Page
from tests.support.alert_expressions import Samples, evaluate
from tests.support.alert_rules import alerts

period_s: Final = 0.5
"""Between two questions to a service, and two looks at the rules."""
answer_time_max_s: Final = 2.0
"""How long a page may take, as a load balancer or Prometheus would allow."""
window_time_max_s: Final = 10.0
"""The window waits for the control plane itself, and then tells what it knows."""
NO_ANSWER: Final = "no answer"
CONTROLLERS, STORES, WINDOW, ALERTS, METRIC = "controllers", "stores", "window", "alerts", "metric"
SOURCES: Final = (CONTROLLERS, STORES, WINDOW, ALERTS, METRIC)


@dataclass
class Sighting:
    """The seconds from the fault at which something was said first and last, and the remedy that came with it."""

    first_s: float
    last_s: float
    remedy: str = ""


Said = dict[str, str]
"""What one service says is wrong, and the remedy of each: problem codes, ``no answer``, parts that are down."""


class Watch:
    """Threads that ask, one for each page, and one that evaluates the alert rules."""

    def __init__(self, pages: Sequence[Page], context: ssl.SSLContext | None) -> None:
        self._context = context
        self._rules = {rule["alert"]: rule["expr"] for rule in alerts()}
        self._lock = threading.Lock()
        self._metric = ""
        self._since_s = time.monotonic()
        self._samples = Samples([])
        self._now: dict[str, tuple[float, str, Said]] = {}
        self._stopping = threading.Event()
        self.sightings: dict[tuple[str, str], Sighting] = {}
        self.forget("up == 0")
        work: list[Callable[[], None]] = [self._judge]
        for page in pages:
            work.append(lambda page=page: self._ask_service(page))  # type: ignore[misc]
            if page.is_controller:
                work.append(lambda page=page: self._ask_window(page))  # type: ignore[misc]
        self._threads = [threading.Thread(target=self._repeat, args=(one,), daemon=True) for one in work]

    def __enter__(self) -> Watch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def forget(self, metric: str) -> None:
        """Begin a fault now, whose metric is an expression in the language of the alert rules."""
        with self._lock:
            self._metric = metric
            self._samples = Samples([*self._rules.values(), metric])
            self._since_s = time.monotonic()
            self.sightings.clear()

    def has_said(self, source: str, anything_of: frozenset[str]) -> bool:
        with self._lock:
            return any((source, what) in self.sightings for what in anything_of)

    def is_calm(self, since_s: float) -> bool:
        """Whether every answer to a question put since then named nothing."""
        with self._lock:
            return all(begun_s >= since_s and not said for begun_s, _, said in self._now.values())

    def now(self) -> list[str]:
        """What is wrong by the last answers."""
        with self._lock:
            return sorted({f"{source}: {what}" for _, source, said in self._now.values() for what in said})

    def _repeat(self, work: Callable[[], None]) -> None:
        while not self._stopping.wait(period_s):
            work()

    def _ask_service(self, page: Page) -> None:
        begun_s = time.monotonic()
        health = self._got(page.health, answer_time_max_s)
        metrics = None if health is None else self._got(page.metrics, answer_time_max_s)
        with self._lock:
            if begun_s >= self._since_s:
                self._samples.add(page.job, page.name, time.monotonic(), metrics)
        self._note(page.name, CONTROLLERS if page.is_controller else STORES, begun_s, said_by_health(health))

    def _ask_window(self, page: Page) -> None:
        begun_s = time.monotonic()
        text = self._got(page.window, window_time_max_s)
        self._note(f"window of {page.name}", WINDOW, begun_s, said_by_window(text))

    def _judge(self) -> None:
        begun_s = time.monotonic()
        with self._lock:
            # Rates look far back: what they hold is of the fault, and does not end with it.
            due: Said = {name: "" for name, text in self._rules.items() if evaluate(text, self._samples)}
            lasting = {name: "" for name in due if "[" not in self._rules[name]}
            metric: Said = {self._metric: ""} if evaluate(self._metric, self._samples) else {}
        self._note("alerts", ALERTS, begun_s, lasting, also=due)
        self._note("metric", METRIC, begun_s, {}, also=metric)

    def _note(self, name: str, source: str, begun_s: float, said: Said, also: Said | None = None) -> None:
        at_s = time.monotonic()
        with self._lock:
            self._now[name] = begun_s, source, said
            if begun_s < self._since_s:
                return
            for what, remedy in {**said, **(also or {})}.items():
                seconds = at_s - self._since_s
                sighting = self.sightings.setdefault((source, what), Sighting(seconds, seconds, remedy))
                sighting.last_s = seconds

    def _got(self, url: str, time_max_s: float) -> str | None:
        """The body of an answer, whatever its status; ``None`` if there was no answer in time."""
        try:
            with urllib.request.urlopen(url, timeout=time_max_s, context=self._context) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()
        except (OSError, HTTPException, ValueError):
            return None


def said_by_health(text: str | None) -> Said:
    """The problems of a health page, and the parts of a controller that are not up."""
    if text is None:
        return {NO_ANSWER: ""}
    body: dict[str, Any] = json.loads(text)
    parts = [f"part {name}" for name, child in body.get("children", {}).items() if child["status"] != "UP"]
    problems = body.get("problems", body.get("details", {}).get("problems", []))
    return {**dict.fromkeys(parts, ""), **{one["code"]: one["remedy"] for one in problems}}


def said_by_window(text: str | None) -> Said:
    """The problems that the window shows."""
    if text is None:
        return {NO_ANSWER: ""}
    return {one["code"]: one["remedy"] for one in json.loads(text).get("problems", [])}
