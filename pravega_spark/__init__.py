"""See the README of this folder."""

from pravega_common.version import __version__
from pravega_spark.progress import Lag, lag

__all__ = ["Lag", "__version__", "lag"]
