"""Counts how long REST calls take."""

from __future__ import annotations

from typing import Final

from prometheus_client import Histogram

REST_CALLS: Final = Histogram(
    "pravega_controller_rest_seconds",
    "Time to answer a REST call, but for event streams; path as in the OpenAPI document",
    ["method", "path"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 120),
)
