"""Makes Spark find ``format("pravega")``: it imports packages named ``pyspark_*`` and takes their ``DefaultSource``.

A failing import here would hide the data sources of all packages from Spark, so nothing but PySpark is imported until
a source or sink is really used (docs/spark-source-and-sink.md B.8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Events of Pravega streams as rows, and rows as events."""

    @classmethod
    def name(cls) -> str:
        return "pravega"

    def schema(self) -> str:
        from pravega_spark import datasource

        return datasource.read_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from pravega_spark import datasource

        return datasource.batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from pravega_spark import datasource

        return datasource.stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pravega_spark import datasource

        return datasource.batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from pravega_spark import datasource

        return datasource.stream_writer(self.options, schema, overwrite)
