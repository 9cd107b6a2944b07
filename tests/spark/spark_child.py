"""Runs a Spark driver in a process of its own, with other jars or another Python than the suite's."""

from __future__ import annotations

import importlib
import multiprocessing
import os
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

call_time_max_s = 180.0


class ChildFailed(Exception):
    """The class name and text of the driver's exception."""


class SparkChild:
    """Runs functions of test modules over there, given by module and name; arguments and results are pickled."""

    def __init__(self, folder: Path, configuration: Mapping[str, str], environment: Mapping[str, str]) -> None:
        context = multiprocessing.get_context("spawn")
        self._calls, theirs = context.Pipe()
        arguments = (theirs, str(folder), dict(configuration), dict(environment))
        self._process = context.Process(target=_serve, args=arguments)
        self._process.start()
        theirs.close()

    def __enter__(self) -> SparkChild:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._calls.close()
        self._process.join(call_time_max_s)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """``function(spark, *arguments)`` in the child; raises ``ChildFailed`` with what it raised."""
        self._calls.send((function.__module__, function.__name__, arguments))
        assert self._calls.poll(call_time_max_s), f"{function.__name__} took more than {call_time_max_s} s"
        result, failure = self._calls.recv()
        if failure is not None:
            raise ChildFailed(failure)
        return result


def _serve(calls: Connection, folder: str, configuration: dict[str, str], environment: dict[str, str]) -> None:
    os.environ.update(environment)
    os.chdir(folder)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("child")
    for name, value in configuration.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    while True:
        try:
            module, name, arguments = calls.recv()
        except EOFError:
            break
        try:
            calls.send((getattr(importlib.import_module(module), name)(spark, *arguments), None))
        except Exception as error:
            calls.send((None, f"{type(error).__name__}: {error}"))
    spark.stop()
