"""Tells the time of the cluster on the driver, whose own clock may be another."""

from __future__ import annotations

from collections.abc import Callable

from pravega_spark.gateway.worker_process import worker_gateway
from pravega_streams.controller.address import Controller


class ClusterClock:
    """The driver's clock, put right by what the cluster told when it was asked; where it tells nothing, as it is.

    The cluster is asked at the first look at the clock, and for ``asked_ms``.
    """

    def __init__(self, controller: Controller, driver_ms: Callable[[], int]) -> None:
        self._controller = controller
        self._driver_ms = driver_ms
        self._ahead_ms: int | None = None
        """How far the cluster is ahead of the driver; None before it was asked."""

    def now_ms(self) -> int:
        """The time of the cluster, without asking it again."""
        return self.asked_ms() if self._ahead_ms is None else self._driver_ms() + self._ahead_ms

    def asked_ms(self) -> int:
        """The time of the cluster as it tells it now, or somewhat less: the answer takes its time."""
        cluster_ms = worker_gateway(self._controller).cluster_time_ms()
        driver_ms = self._driver_ms()
        self._ahead_ms = 0 if cluster_ms is None else cluster_ms - driver_ms
        return driver_ms + self._ahead_ms
