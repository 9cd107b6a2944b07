"""Checks that errors of the connector reach Spark as sentences, and that nothing else is hidden."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
from collections.abc import Iterator

import pytest
from pyspark.sql import datasource as spark_interface

import pravega_spark.sink
import pravega_spark.source
from pravega_common.errors import InvalidArgument, PravegaError
from pravega_spark import datasource
from pravega_spark.spark_errors import CALLED_BY_SPARK, HIDE, in_sentences, one_sentence
from pravega_spark.spark_version import ADMISSION_CONTROL, ARROW_STREAM_SINK, has

BASES = tuple(
    getattr(spark_interface, name)
    for name in ("DataSourceReader", "DataSourceStreamReader", "DataSourceWriter", "DataSourceStreamWriter")
)


def spark_classes() -> list[type]:
    """The readers and writers of the connector."""
    found: set[type] = set()
    for package in (pravega_spark.source, pravega_spark.sink):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            try:
                loaded = importlib.import_module(module.name)
            except ImportError:  # A base class that this Spark lacks.
                assert not (has(ADMISSION_CONTROL) and has(ARROW_STREAM_SINK)), module.name
                continue
            classes = [one for _, one in inspect.getmembers(loaded, inspect.isclass) if issubclass(one, BASES)]
            found.update(one for one in classes if one.__module__.startswith("pravega_spark"))
    return sorted(found, key=lambda one: one.__name__)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process looks like one of Spark's workers."""
    monkeypatch.setenv(HIDE, "")
    monkeypatch.delenv(HIDE)
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_PORT", "1")


def test_all_that_spark_calls_is_decorated() -> None:
    assert {"BatchReader", "StreamReader", "BatchWriter", "StreamWriter"} <= {one.__name__ for one in spark_classes()}
    bare = [
        f"{one.__name__}.{name}"
        for one in spark_classes()
        for name in CALLED_BY_SPARK & vars(one).keys()
        if not hasattr(vars(one)[name], "__wrapped__")
    ]
    assert bare == []
    makers = [datasource.read_schema, datasource.batch_reader, datasource.batch_writer, datasource.stream_writer]
    assert all(hasattr(maker, "__wrapped__") for maker in makers)
    known = {name for base in BASES for name in vars(base) if not name.startswith("_")}
    assert known - CALLED_BY_SPARK <= {"stop"} | {"name", "schema"}, "Spark calls more methods than are decorated"


@in_sentences
class Read:
    def read(self, error: Exception) -> Iterator[int]:
        yield 1
        raise error

    def commit(self, error: Exception) -> None:
        try:
            raise KeyError("of the cause")
        except KeyError:
            raise error  # noqa: B904  # without a cause, as code may do


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("method", ["read", "commit"])
def test_our_errors_hide_the_traceback_and_others_do_not(method: str) -> None:
    with pytest.raises(ValueError, match="of the user"):
        list(getattr(Read(), method)(ValueError("of the user")))
    assert HIDE not in os.environ
    with pytest.raises(InvalidArgument, match="ours") as caught:
        list(getattr(Read(), method)(InvalidArgument("ours")))
    assert os.environ[HIDE] == "1"
    assert caught.value.__suppress_context__


@pytest.mark.usefixtures("worker")
def test_who_asks_for_tracebacks_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIDE, "")
    with pytest.raises(PravegaError):
        Read().commit(InvalidArgument("ours"))
    assert os.environ[HIDE] == ""


def test_a_driver_keeps_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIDE, "")
    monkeypatch.delenv(HIDE)

    @one_sentence
    def refuses() -> None:
        raise InvalidArgument("ours")

    with pytest.raises(InvalidArgument):
        refuses()
    assert HIDE not in os.environ
