"""See the README of this folder."""

from pravega_spark.progress import Lag, lag

__all__ = ["Lag", "lag"]
