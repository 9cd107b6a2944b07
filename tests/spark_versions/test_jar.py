"""Builds the optional jar for the Spark that is installed, and runs on it what it does on every minor."""

from __future__ import annotations

from pathlib import Path

import pytest

from pravega_spark.spark_version import spark_minor
from tests.spark.spark_child import ChildFailed, SparkChild
from tests.spark.test_jvm_shim import (
    child,
    scope,
    sql,
    test_another_spark_is_refused_and_its_other_formats_work,
    test_building_again_does_nothing,
    test_namespaces_are_scopes,
    test_options_of_create_table,
    test_table_of_the_session_catalog_keeps_its_options,
    test_tables_are_streams,
)

__all__ = [
    "child",
    "scope",
    "test_another_spark_is_refused_and_its_other_formats_work",
    "test_building_again_does_nothing",
    "test_namespaces_are_scopes",
    "test_options_of_create_table",
    "test_table_of_the_session_catalog_keeps_its_options",
    "test_tables_are_streams",
]


def test_the_jar_is_that_of_this_spark(jar: Path) -> None:
    assert jar.name == "pravega-spark-shim-spark{}.{}.jar".format(*spark_minor())


def test_rows_go_in_and_come_out(child: SparkChild, scope: str) -> None:
    table = f"streams.{scope}.rows"
    child.run(sql, f"CREATE TABLE {table}", f"INSERT INTO {table} VALUES ('a', 'k'), ('b', 'k')")
    assert child.run(sql, f"SELECT cast(event AS string) FROM {table} ORDER BY 1") == [("a",), ("b",)]


@pytest.mark.skipif(spark_minor() >= (4, 3), reason="this Spark gives a catalog the options of a query")
def test_a_query_that_asks_for_other_columns_is_refused_by_the_version_that_has_them(
    child: SparkChild, scope: str
) -> None:
    child.run(sql, f"CREATE TABLE streams.{scope}.t")
    with pytest.raises(ChildFailed, match=r"needs Spark 4\.3, this is 4\.[012].*CREATE TABLE"):
        child.run(sql, f"SELECT * FROM streams.{scope}.t WITH (metadata='StreamInfo')")
