"""See the README of this folder.

The public names are imported when they are first used (PEP 562): every command and every process that Spark starts
imports this package, and few of them need one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pravega_common.public_names import public_name

if TYPE_CHECKING:
    from pravega_common.version import __version__
    from pravega_spark.pictures.shown import show
    from pravega_spark.progress import Lag, lag
    from pravega_spark.read_cut import cut_of

_MODULES: Final = {
    "Lag": "pravega_spark.progress",
    "__version__": "pravega_common.version",
    "cut_of": "pravega_spark.read_cut",
    "lag": "pravega_spark.progress",
    "show": "pravega_spark.pictures.shown",
}
"""The module of each public name."""

__all__ = ["Lag", "__version__", "cut_of", "lag", "show"]


def __getattr__(name: str) -> Any:
    return public_name(globals(), _MODULES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
