"""See the README of this folder."""

from pravega_common.version import __version__
from pravega_spark.pictures.shown import show
from pravega_spark.progress import Lag, lag
from pravega_spark.read_cut import cut_of

__all__ = ["Lag", "__version__", "cut_of", "lag", "show"]
