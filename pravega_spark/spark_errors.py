"""Shows our errors to users of Spark as their sentence, without the frames that lead to them."""

from __future__ import annotations

import functools
import inspect
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any, Final, ParamSpec, TypeVar

from pravega_common.errors import PravegaError

_log = logging.getLogger(__name__)

HIDE: Final = "SPARK_HIDE_TRACEBACK"
"""PySpark's own variable. Who sets it to nothing sees the whole traceback: ``SPARK_HIDE_TRACEBACK= spark-submit …``."""
WORKER_VARIABLES: Final = "PYTHON_WORKER_FACTORY_"
"""Spark sets variables that begin so in the Python processes that it starts, and in no others."""
CALLED_BY_SPARK: Final = frozenset(
    {
        "abort",
        "commit",
        "getDefaultReadLimit",
        "initialOffset",
        "latestOffset",
        "partitions",
        "prepareForTriggerAvailableNow",
        "pushFilters",
        "read",
        "reportLatestOffset",
        "write",
    }
)
"""The methods of readers and writers whose errors Spark shows."""

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")
_Class = TypeVar("_Class", bound=type)


def one_sentence(call: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Decorates a function that Spark calls, also one that yields: a ``PravegaError`` in it is shown as its sentence.

    An error of another kind, ours or the user's, is a defect and keeps its traceback.
    """
    if inspect.isgeneratorfunction(call):

        @functools.wraps(call)
        def generator(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> Iterator[Any]:
            try:
                yield from call(*args, **kwargs)
            except PravegaError as error:
                _hide_traceback()
                raise error from None

        return generator  # type: ignore[return-value]  # the result of a generator function is its iterator

    @functools.wraps(call)
    def function(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        try:
            return call(*args, **kwargs)
        except PravegaError as error:
            _hide_traceback()
            raise error from None

    return function


def in_sentences(made: _Class) -> _Class:
    """Decorates a class of Spark's: its methods in ``CALLED_BY_SPARK`` show errors as sentences."""
    for name in CALLED_BY_SPARK & vars(made).keys():
        setattr(made, name, one_sentence(vars(made)[name]))
    return made


def _hide_traceback() -> None:
    """Makes this process print its last error without a traceback: a worker of Spark ends with the first error."""
    _log.debug("an error is shown to Spark as its sentence", exc_info=True)
    if any(name.startswith(WORKER_VARIABLES) for name in os.environ):
        os.environ.setdefault(HIDE, "1")
