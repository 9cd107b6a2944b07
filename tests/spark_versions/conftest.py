"""Gives the tests one small Spark of whatever minor is installed, and services."""

from __future__ import annotations

from tests.spark.conftest import jar, services, spark, streams

__all__ = ["jar", "services", "spark", "streams"]
