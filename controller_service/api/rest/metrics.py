"""Serves the metrics of a controller for Prometheus: its own numbers, read on request, and those of the process."""

from __future__ import annotations

from collections.abc import Iterator

from aiohttp import web
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from controller_service.api.rest.health import HealthRegistry
from controller_service.lag.known_subscribers import KnownSubscribers, known_max
from controller_service.sets.known_sinks import KnownSinks
from controller_service.sets.known_sinks import known_max as known_sinks_max
from controller_service.watermarks.watermark_ages import WatermarkAges
from pravega_common.runtime.joined import both_ended
from pravega_common.services.latency import latency_family
from pravega_common.services.problems import problem_family


class ControllerCollector(Collector):
    """The numbers of one controller that are not counted where they happen."""

    def __init__(
        self, health: HealthRegistry, subscribers: KnownSubscribers, sinks: KnownSinks, ages: WatermarkAges
    ) -> None:
        self._health = health
        self._subscribers = subscribers
        self._sinks = sinks
        self._ages = ages

    def collect(self) -> Iterator[Metric]:
        ready, judge = self._health.overall().readiness, self._health.judge
        yield GaugeMetricFamily("pravega_controller_ready", "1 while the controller does its work", value=float(ready))
        yield problem_family("pravega_controller_problem", () if judge is None else judge.problems())
        lag = () if judge is None else [((), judge.loop_lag.counts)]
        yield latency_family("pravega_controller_loop_lag_seconds", "How late the loop runs what is due", (), lag)
        ownerless = 0 if judge is None else len(judge.ownerless())
        text = "Containers that no live store owns"
        yield GaugeMetricFamily("pravega_controller_containers_without_store", text, value=ownerless)
        left_s = 0.0 if judge is None else judge.lease_left_s()
        text = "Seconds until the controller's lease ends; negative once it has"
        yield GaugeMetricFamily("pravega_controller_lease_left_seconds", text, value=left_s)
        yield from self._of_subscribers()
        yield from self._of_sinks()
        yield from self._of_watermarks()

    def _of_subscribers(self) -> Iterator[Metric]:
        text = "Subscribers of streams whose lag this controller tells, one for each stream"
        yield GaugeMetricFamily("pravega_controller_known_subscribers", text, value=len(self._subscribers))
        text = "Above it further ones are not told"
        yield GaugeMetricFamily("pravega_controller_known_subscribers_limit", text, value=known_max)
        labels = ["stream", "subscriber"]
        text = "Bytes from the last position that a subscriber told to the tail"
        behind = GaugeMetricFamily("pravega_controller_subscriber_behind_bytes", text, labels=labels)
        text = "How long ago a subscriber told its position; 0 while there is nothing behind it"
        stalled = GaugeMetricFamily("pravega_controller_subscriber_stalled_seconds", text, labels=labels)
        for stream, lag, stalled_s in self._subscribers.lags():
            if lag.behind_bytes is not None:
                behind.add_metric([stream, lag.name], lag.behind_bytes)
                stalled.add_metric([stream, lag.name], stalled_s)
        yield from (behind, stalled)

    def _of_sinks(self) -> Iterator[Metric]:
        text = "Sinks whose state this controller tells"
        yield GaugeMetricFamily("pravega_controller_known_sinks", text, value=len(self._sinks))
        text = "Above it a further one takes the place of the one that called longest ago"
        yield GaugeMetricFamily("pravega_controller_known_sinks_limit", text, value=known_sinks_max)
        labels = ["sink", "destination"]
        text = "Seconds since the commit of the last batch of a sink began"
        ages = GaugeMetricFamily("pravega_controller_sink_batch_age_seconds", text, labels=labels)
        text = "Undecided batches of a sink that have transactions"
        batches = GaugeMetricFamily("pravega_controller_sink_open_batches", text, labels=labels)
        text = "How long a batch of a sink has been on its way from its commit to being readable; 0 without one"
        rounds = GaugeMetricFamily("pravega_controller_sink_round_open_seconds", text, labels=labels)
        for state in self._sinks.states():
            names = [state.query_id, state.destination]
            if state.batch_age_s is not None:
                ages.add_metric(names, state.batch_age_s)
            batches.add_metric(names, state.open_batches)
            rounds.add_metric(names, state.round_open_s)
        yield from (ages, batches, rounds)

    def _of_watermarks(self) -> Iterator[Metric]:
        text = "Age of the newest watermark of a stream with writers that note time"
        ages = GaugeMetricFamily("pravega_controller_watermark_age_seconds", text, labels=["stream"])
        text = "The same while a writer that is behind holds it up; 0 while no writer does"
        held = GaugeMetricFamily("pravega_controller_watermark_held_seconds", text, labels=["stream"])
        for stream, age_s, is_held in self._ages.ages():
            ages.add_metric([stream], age_s)
            held.add_metric([stream], age_s if is_held else 0.0)
        yield from (ages, held)


class MetricsPage:
    """``GET /metrics``."""

    def __init__(
        self, health: HealthRegistry, subscribers: KnownSubscribers, sinks: KnownSinks, ages: WatermarkAges
    ) -> None:
        self._subscribers = subscribers
        self._sinks = sinks
        self._own = CollectorRegistry(auto_describe=False)
        self._own.register(ControllerCollector(health, subscribers, sinks, ages))

    async def get(self, request: web.Request) -> web.Response:
        await both_ended(self._subscribers.look(), self._sinks.look())
        body = generate_latest(self._own) + generate_latest(REGISTRY)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})
