"""Gives the tests one small Spark of whatever minor is installed, and services."""

from __future__ import annotations

from tests.spark.conftest import services, spark, streams

__all__ = ["services", "spark", "streams"]
